"""The PNG files of a run."""

import io
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report.sample_run import write_predictions, write_run
from report.sample_summary import SUMMARY, target

from slicegraph.report.plots import (
    DARK,
    LIGHT,
    MOST_BINS,
    Plot,
    label,
    learning_plots,
    number,
    render,
    size_bins,
    summary_plots,
    target_plots,
)
from slicegraph.report.read import read_run


def pixels(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), dtype=int)


def plots_of(folder) -> dict[str, Plot]:
    run = read_run(folder)
    plots = [*learning_plots(run), *target_plots(run.targets[0])]
    return {plot.name: plot for plot in plots}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("regression", {"predicted", "errors", "sizes"}),
        ("binary", {"roc", "scores", "sizes"}),
        ("multiclass", {"confusion", "recall", "sizes"}),
    ],
)
def test_figures_of_each_kind_of_task_have_their_size_and_are_not_blank(tmp_path, kind, names):
    plots = plots_of(write_run(tmp_path / "run", kind))
    assert set(plots) == names | {"loss", "metric"}
    for name, plot in plots.items():
        if kind == "regression" or name in names:
            drawn = pixels(render(plot, LIGHT))
            assert drawn.shape == ((580, 1840, 3) if name == "sizes" else (660, 900, 3))
            assert (drawn[..., 2] > drawn[..., 0] + 60).mean() > 0.001


def test_many_molecules_are_drawn_as_a_density(tmp_path):
    plots = plots_of(write_run(tmp_path / "run", molecules=3001))
    colours = np.unique(pixels(render(plots["predicted"], LIGHT)).reshape(-1, 3), axis=0)
    assert len(colours) > 50


def test_one_molecule_is_enough(tmp_path):
    run = write_run(tmp_path / "run")
    write_predictions(run / "predictions" / "test.csv", {"gap": ([2.0], [2.0])})
    for name in ("predicted", "errors", "sizes"):
        assert len(render(plots_of(run)[name], LIGHT)) > 1000


def test_dark_figures_have_a_dark_background():
    plot = Plot("any", "any", "", lambda axes, theme: None)
    for theme, background in ((LIGHT, [255, 255, 255]), (DARK, [25, 29, 35])):
        assert pixels(render(plot, theme))[0, 0].tolist() == background


@pytest.mark.parametrize("name", ["$\\frac{$", "$x$ and $", "温度", "tab\tand\x00", "a" * 500])
def test_any_name_can_be_on_an_axis(name):
    plot = Plot("any", "any", "", lambda axes, theme: label(axes, theme, name, name))
    assert render(plot, LIGHT).startswith(b"\x89PNG")


def test_pyplot_is_not_imported_and_no_setting_changes():
    code = (
        "import sys, matplotlib\n"
        "settings = lambda: dict(dict.items(matplotlib.rcParams))\n"
        "before = settings()\n"
        "from slicegraph.report.plots import LIGHT, Plot, render\n"
        "render(Plot('a', 'a', '', lambda axes, theme: None), LIGHT)\n"
        "assert 'matplotlib.pyplot' not in sys.modules; assert settings() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_size_bins_hold_every_size_once():
    bins = size_bins(np.array([3, 17, 61, 3, 5]))
    assert len(bins) <= MOST_BINS
    assert [sum(low <= size <= high for low, high in bins) for size in range(3, 62)] == [1] * 59


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (-1.5, "-1.500"),
        (0.071234, "0.0712"),
        (0.00012, "0.000120"),
        (123.456, "123.5"),
        (12345.6, "12,346"),
        (2e-9, "2e-09"),
        (3.2e9, "3.2e+09"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_have_three_significant_digits_or_decimals(value, text):
    assert number(value) == text


@pytest.mark.parametrize("classes", [(), ("$\\frac{$", "b")])
def test_figures_of_the_data_are_not_blank(classes):
    summary = {
        **SUMMARY,
        "targets": [target("$x$", "binary" if classes else "regression", classes)],
    }
    for plot in summary_plots(summary, most=3):
        drawn = pixels(render(plot, LIGHT))
        assert (drawn[..., 2] > drawn[..., 0] + 60).mean() > 0.001


def test_labels_over_orders_of_magnitude_have_a_logarithmic_axis():
    wide = {**target(), "edges": [0.01, 1.0, 100.0], "log": True}
    plot = next(summary_plots({**SUMMARY, "targets": [wide]}, most=1))
    axes = Figure().add_subplot()
    plot.draw(axes, LIGHT)
    assert axes.get_xscale() == "log"


def test_only_the_first_targets_have_figures():
    summary = {**SUMMARY, "targets": [target(name) for name in "abcd"], "similarity": None}
    names = [plot.name for plot in summary_plots(summary, most=3)]
    assert names == ["labels-1", "labels-2", "labels-3"]

"""The PNG files of a run."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from report.sample_run import write_predictions, write_run

from slicegraph.report import write_report
from slicegraph.report.plot import Plot, label, render
from slicegraph.report.size_plot import MOST_BINS, size_bins
from slicegraph.report.theme import DARK, LIGHT

LEARNING = {"loss", "metric"}


def colours(path) -> set[tuple[int, int, int]]:
    with Image.open(path) as image:
        return {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}


def blue_share(path) -> float:
    with Image.open(path) as image:
        red, _, blue = np.moveaxis(np.asarray(image.convert("RGB"), dtype=int), 2, 0)
    return float((blue > red + 60).mean())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("regression", {"predicted", "errors", "sizes"}),
        ("binary", {"roc", "scores", "sizes"}),
        ("multiclass", {"confusion", "recall", "sizes"}),
    ],
)
def test_each_kind_of_task_has_its_figures(tmp_path, kind, names):
    write_report(write_run(tmp_path / "run", kind))
    found = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert found == {f"{name}.png" for name in names | LEARNING}


def test_figures_have_their_size_and_are_not_blank(tmp_path):
    write_report(write_run(tmp_path / "run"))
    for path in (tmp_path / "run" / "figures").iterdir():
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.size == ((1840, 580) if path.stem == "sizes" else (900, 660))
        assert blue_share(path) > 0.001


def test_several_targets_have_figures_of_their_own_names(tmp_path):
    write_report(write_run(tmp_path / "run", targets=("mu", "../é/b", "homo", "lumo")))
    found = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert {"1-mu-predicted.png", "2-b-predicted.png", "3-homo-errors.png"} <= found
    assert len(found) == 2 + 3 * 3
    assert len(list((tmp_path / "run").iterdir())) == 9


def test_many_molecules_are_drawn_as_a_density(tmp_path):
    write_report(write_run(tmp_path / "run", molecules=3001))
    with_density = colours(tmp_path / "run" / "figures" / "predicted.png")
    assert len(with_density) > 50


def test_dark_figures_have_dark_ground():
    plot = Plot("any", "any", "", lambda axes, theme: None)
    for theme, ground in ((LIGHT, (255, 255, 255)), (DARK, (25, 29, 35))):
        with Image.open(io.BytesIO(render(plot, theme))) as image:
            assert image.convert("RGB").getpixel((0, 0)) == ground


@pytest.mark.parametrize("name", ["$\\frac{$", "$x$ and $", "温度", "tab\tand\x00", "a" * 500])
def test_any_name_can_stand_at_an_axis(name):
    plot = Plot("any", "any", "", lambda axes, theme: label(axes, theme, name, name))
    assert render(plot, LIGHT).startswith(b"\x89PNG")


def test_pyplot_is_not_imported_and_no_setting_changes():
    code = (
        "import sys, matplotlib\n"
        "settings = lambda: dict(dict.items(matplotlib.rcParams))\n"
        "before = settings()\n"
        "from slicegraph.report.plot import LIGHT, Plot, render\n"
        "render(Plot('a', 'a', '', lambda axes, theme: None), LIGHT)\n"
        "assert 'matplotlib.pyplot' not in sys.modules; assert settings() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_size_bins_hold_every_size_once():
    sizes = np.array([3, 17, 61, 3, 5])
    bins = size_bins(sizes)
    assert len(bins) <= MOST_BINS
    assert [sum(low <= size <= high for low, high in bins) for size in range(3, 62)] == [1] * 59


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_molecules_are_enough(tmp_path, count):
    run = write_run(tmp_path / "run")
    values = {"gap": (np.full(count, 2.0), np.full(count, 2.0))}
    write_predictions(run / "predictions" / "test.csv", values)
    write_report(run)
    assert (run / "figures" / "predicted.png").stat().st_size > 1000

"""Drawings of molecules: colours by contribution, a legend, and no text."""

import re

import pytest

from slicegraph.drawing import CARD, as_html, draw_molecule, on_white


def test_each_atom_has_a_colour_as_deep_as_its_contribution():
    svg = draw_molecule("CO", [-0.5, 1.0])
    marks = re.findall(
        r"<ellipse[^>]*class='atom-(\d)'[^>]*fill:(#\w{6});fill-opacity:([\d.]+)", svg
    )
    assert [(atom, colour) for atom, colour, _ in marks] == [("0", "#005BBF"), ("1", "#D65E00")]
    assert [float(depth) for *_, depth in marks] == pytest.approx([0.375, 0.75], abs=0.01)
    deeper = draw_molecule("CO", [-0.5, 1.0], limit=0.5)
    assert deeper.count("fill-opacity:0.749") == 2


def test_a_legend_is_below_the_molecule_and_not_text():
    plain, svg = draw_molecule("CO", [1, 2]), draw_molecule("CO", [1, 2], legend="</svg><b>")
    assert "height='300px'" in plain
    assert "height='358px'" in svg
    assert "<b>" not in svg
    assert svg.count("</svg>") == 1


def test_a_png_is_a_png():
    assert draw_molecule("CO", [1, 2], legend="x", png=True).startswith(b"\x89PNG")


def test_a_wrong_number_of_contributions_is_an_error():
    with pytest.raises(ValueError, match="1 contributions for 2 atoms of 'CO'"):
        draw_molecule("CO", [1])


@pytest.mark.parametrize("text", ["C1CC", "", "<script>"])
def test_what_is_not_a_molecule_has_no_drawing(text):
    assert draw_molecule(text) is None


def test_a_page_has_the_colour_of_its_text_and_a_file_is_on_white():
    svg = draw_molecule("CO", size=CARD)
    assert "currentColor" in as_html(svg)
    assert "xmlns" not in as_html(svg)
    assert on_white(svg).count("fill='#FFFFFF'") == 1

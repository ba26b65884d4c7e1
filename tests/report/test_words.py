"""How numbers and data cards are spelled."""

import pytest

from slicegraph.report.markdown import markdown
from slicegraph.report.numbers import duration, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.23147, "0.231"),
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
def test_numbers_have_three_digits_that_say_something(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.14, "3.1 s"), (59.6, "1 min 0 s"), (51, "51 s"), (135, "2 min 15 s"), (7300, "2 h 1 min")],
)
def test_durations_are_spelled_as_people_do(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("card", "html"),
    [
        ("# A `b`\ntext", "<h4>A <code>b</code></h4>\n<p>text</p>"),
        ("one\ntwo\n\nthree", "<p>one two</p>\n<p>three</p>"),
        ("- a\n  b\n- **c**", "<ul><li>a b</li><li><strong>c</strong></li></ul>"),
        ("```sh\n# a\n\n<b>\n```\nc", "<pre># a\n\n&lt;b&gt;</pre>\n<p>c</p>"),
        ("[x](javascript:y) <b>", "<p>[x](javascript:y) &lt;b&gt;</p>"),
        ("", ""),
        ("```\nnever closed", "<pre>never closed</pre>"),
    ],
)
def test_card_becomes_html(card, html):
    assert markdown(card) == html


def test_table_of_a_card_has_cells_and_no_rule():
    html = markdown("| a | b |\n|---|:-:|\n| 1 | 2 |")
    assert html.count("<tr>") == 2
    assert html.count("<td>") == 4
    assert "---" not in html

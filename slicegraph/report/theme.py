"""The colours of figures and page, for light and for dark screens."""

from dataclasses import dataclass

from matplotlib.colors import LinearSegmentedColormap, to_hex


@dataclass(frozen=True)
class Theme:
    """One set of colours.

    Args:
        background: of figures and of the cards they lie on.
        page: around the cards.
        text: of headings and values.
        muted: of axes and labels.
        line: of borders and grids.
        first: the main colour of figures.
        second: the other one.
    """

    background: str
    page: str
    text: str
    muted: str
    line: str
    first: str
    second: str

    @property
    def ramp(self) -> LinearSegmentedColormap:
        """From the background to the main colour."""
        return LinearSegmentedColormap.from_list("ramp", [self.background, self.first])

    @property
    def contrast(self) -> LinearSegmentedColormap:
        """From the other colour to the main one, through the background."""
        colours = [self.second, self.background, self.first]
        return LinearSegmentedColormap.from_list("contrast", colours)

    @property
    def density(self) -> LinearSegmentedColormap:
        """From a tint that is seen on the background to the text colour, through the main one."""
        tint = to_hex(self.ramp(0.2))
        return LinearSegmentedColormap.from_list("density", [tint, self.first, self.text])


LIGHT = Theme("#ffffff", "#f6f7f9", "#1c2128", "#5f6875", "#e2e5ea", "#2b6cb0", "#d9772b")
DARK = Theme("#191d23", "#111418", "#e8eaed", "#9aa3af", "#2e343d", "#6cabe8", "#f0a35e")

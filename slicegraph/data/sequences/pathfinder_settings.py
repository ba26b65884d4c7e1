"""What the pictures of Pathfinder are made of, at the sizes of the Long Range Arena."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PathfinderSettings:
    """What a scene is made of; lengths are in pixels.

    Args:
        image_size: the height and width.
        contour_length: the number of dashes of each of the two long paths.
        distractor_length, num_distractors: dashes of a short path, and how many there are at most.
        dash, thickness: the length and width of a dash.
        margins: what is kept free around a dash; every scene has one of these. The gap between two
            dashes of a path is two margins; from the middle of a dash to the edge of any other are
            at least as many.
        continuity: how straight the paths are: between two dashes they turn by an angle of weight
            ``cos(min(continuity * abs(angle), pi / 2)) ** 2``.
        seed_distance: how far the beginnings of the two long paths are apart; the first is at least
            twice as far from the edge.
        marker_radius: of the discs on the two ends.
        contrast, distractor_contrast: what the shade of long and of short paths is multiplied by;
            markers are white. A dash of half a pixel is 3/4 white at most, before that.
    """

    image_size: int = 32
    contour_length: int = 14
    distractor_length: int = 4
    num_distractors: int = 5
    dash: float = 2.0
    thickness: float = 0.5
    margins: tuple[float, ...] = (1.0,)
    continuity: float = 1.0
    seed_distance: float = 7.0
    marker_radius: float = 1.5
    contrast: float = 1.0
    distractor_contrast: float = 4 / 3

    def __post_init__(self) -> None:
        if not 0 < self.thickness <= self.dash:
            raise ValueError(
                f"PathfinderSettings: thickness = {self.thickness} is not above 0 and at most "
                f"dash = {self.dash}"
            )


PATHFINDER = {
    32: PathfinderSettings(),
    128: PathfinderSettings(
        image_size=128,
        num_distractors=8,
        dash=5.0,
        thickness=1.5,
        margins=(2.0, 3.0),
        continuity=1.8,
        seed_distance=20.0,
        marker_radius=3.0,
        contrast=0.9,
        distractor_contrast=0.9,
    ),
}
"""The settings of Pathfinder and of Path-X in the Long Range Arena."""

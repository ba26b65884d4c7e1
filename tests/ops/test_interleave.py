"""The interleaved order: the sign of a sine, taken exactly."""

import math

import pytest
import torch

from slicegraph.ops import interleave_descending


@pytest.mark.parametrize(
    ("channels", "num_layers"), [(1, 1), (4, 3), (6, 5), (12, 4), (80, 12), (97, 3)]
)
def test_is_the_sign_of_the_sine(channels: int, num_layers: int) -> None:
    for layer in range(1, num_layers + 1):
        expected = [
            math.sin(2 ** (num_layers - layer) * math.pi * i / channels) < -1e-9
            for i in range(1, channels + 1)
        ]
        assert interleave_descending(channels, layer, num_layers).tolist() == expected


def test_last_layer_ascends_everywhere() -> None:
    assert not interleave_descending(512, layer=7, num_layers=7).any()


def test_zeros_of_the_sine_ascend() -> None:
    # 2^2 * i / 4 is an integer for every i: a float sine gives 1e-16 noise of either sign.
    assert not interleave_descending(4, layer=1, num_layers=3).any()


def test_hundreds_of_layers_are_exact() -> None:
    # 2^299 = 2 (mod 3): q = 2i (mod 6) = 2, 4, 0, and the sine is negative between 3 and 6.
    assert pow(2, 299, 6) == 2
    assert interleave_descending(3, layer=1, num_layers=300).tolist() == [False, True, False]


def test_no_channels() -> None:
    mask = interleave_descending(0, 1, 1)
    assert mask.shape == (0,)
    assert mask.dtype == torch.bool


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 0, 4), "layer = 0 is not in 1..4"),
        ((8, 5, 4), "layer = 5 is not in 1..4"),
        ((8, 1, 0), "num_layers = 0 must be at least 1"),
        ((-1, 1, 1), "num_channels = -1 is negative"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interleave_descending(*arguments)

"""The permutation of a channel is the one that its sort applies."""

import pytest
import torch
from support.traced_models import image_model, images

from slicegraph.analysis import implicit_permutation, trace
from slicegraph.nn import Order

X = torch.tensor([[3.0, 9.0], [1.0, 7.0], [2.0, 9.0], [1.0, 8.0]])


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ascending", [1, 3, 2, 0]),
        ("descending", [0, 2, 1, 3]),
        ("max_exchange", [0, 1, 2, 3]),
    ],
)
def test_the_permutation_is_the_stable_argsort_of_the_channel(order, expected):
    assert implicit_permutation(Order(order, 2), X, channel=0).tolist() == expected


def test_the_exchange_swaps_the_first_row_with_that_of_the_first_maximum():
    swapped = implicit_permutation(Order("max_exchange", 2), X.flip(0), channel=0)
    assert swapped.tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize("order", ["ascending", "descending", "interleave", "max_exchange"])
def test_it_takes_what_a_layer_was_given_to_what_it_made_of_it(order):
    for layer in trace(image_model(order=order), images()):
        before, after = (layer.rows(x, 2) for x in (layer.unordered, layer.ordered))
        for channel in (0, 7, 31):
            sources = implicit_permutation(layer.mixer.order, before, channel)
            assert torch.equal(before[sources, channel], after[:, channel])
            assert sources.sort().values.tolist() == list(range(17))


@pytest.mark.parametrize("channel", [-1, 2])
def test_channel_out_of_range_is_refused(channel):
    with pytest.raises(ValueError, match=rf"there is no channel {channel}, they are 0\.\.1"):
        implicit_permutation(Order("ascending", 2), X, channel)

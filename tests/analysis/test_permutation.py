"""The permutation of a channel is the one that its sort applies."""

import pytest
import torch
from models.small_graphs import random_graph
from support.small_models import small_model
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
            sources = implicit_permutation(layer.order, before, channel)
            assert torch.equal(before[sources, channel], after[:, channel])
            assert sources.sort().values.tolist() == list(range(17))


def test_a_layer_that_reads_quantiles_sorts_upwards():
    for layer in trace(small_model(mixer="quantile_attn"), random_graph(9)):
        sources = implicit_permutation(layer.order, layer.unordered, channel=3)
        assert torch.equal(sources, layer.unordered[:, 3].sort(stable=True).indices)


@pytest.mark.parametrize("channel", [-1, 2])
def test_channel_out_of_range_is_refused(channel):
    with pytest.raises(ValueError, match=rf"there is no channel {channel}, they are 0\.\.1"):
        implicit_permutation(Order("ascending", 2), X, channel)

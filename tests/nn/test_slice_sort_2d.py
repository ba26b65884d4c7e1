"""SliceSort2d: a feature map is the set of its positions."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from slicegraph.nn import SliceSort2d
from slicegraph.testing import assert_padding_invariant

ORDERS = ["ascending", "descending", "interleave", "max_exchange"]


def plain(order: str) -> SliceSort2d:
    """A layer that sorts its input as it is."""
    layer = SliceSort2d(2, order=order, out_proj=False, bias=False)
    with torch.no_grad():
        layer.positions.value_proj.weight.copy_(torch.eye(2))
    return layer


def formula(layer: SliceSort2d, x: Tensor) -> Tensor:
    """Two 1x1 convolutions with the ascending sort of all positions between them."""
    value, out = layer.positions.value_proj, layer.positions.out_proj
    maps = torch.nn.functional.conv2d(x, value.weight[:, :, None, None], value.bias)
    maps = maps.flatten(2).sort(dim=-1).values.view(maps.shape)
    return torch.nn.functional.conv2d(maps, out.weight[:, :, None, None], out.bias)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ascending", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ("descending", [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]),
        ("max_exchange", [6.0, 1.0, 5.0, 2.0, 3.0, 4.0]),
    ],
)
def test_positions_are_ordered_row_by_row(order, expected):
    x = torch.tensor([3.0, 1.0, 5.0, 2.0, 6.0, 4.0]).view(1, 1, 2, 3)
    out = plain(order)(torch.cat([x, -x], dim=1))
    assert out[0, 0].flatten().tolist() == expected


def test_maps_follow_the_formula():
    layer, x = SliceSort2d(3, 5).double(), torch.randn(2, 3, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x), formula(layer, x))


def test_gradients_are_those_of_the_formula():
    layer = SliceSort2d(3, 5).double()
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 4, 6, dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    expected = torch.autograd.grad(formula(layer, x), leaves, weight)
    torch.testing.assert_close(torch.autograd.grad(layer(x), leaves, weight), expected)


def test_masked_positions_come_out_as_zeros_and_take_no_part():
    x = torch.tensor([[3.0, -9.0, 5.0], [9.0, 2.0, 4.0]]).expand(1, 2, 2, 3)
    mask = torch.tensor([[[True, False, True], [False, True, True]]])
    expected = torch.tensor([[2.0, 0.0, 3.0], [0.0, 4.0, 5.0]]).expand(1, 2, 2, 3)
    torch.testing.assert_close(plain("ascending")(x, mask), expected, rtol=0, atol=0)


@pytest.mark.parametrize("order", ORDERS)
def test_a_map_is_the_same_alone_as_in_a_batch(order):
    layer = SliceSort2d(5, order=order)

    def on_columns(x: Tensor, mask: Tensor) -> Tensor:
        return layer(x.mT.unsqueeze(-1), mask.unsqueeze(-1)).squeeze(-1).mT

    assert_padding_invariant(on_columns, [torch.randn(n, 5) for n in (4, 1, 6)], holes=True)


def test_channels_last_input_is_not_copied():
    layer, seen = SliceSort2d(3), []
    layer.positions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    layer(x)
    assert seen[0].data_ptr() == x.data_ptr()
    assert seen[0].is_contiguous()


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("masked", [False, True])
def test_output_is_channels_last(memory_format, masked):
    x = torch.randn(2, 3, 4, 5).to(memory_format=memory_format)
    mask = torch.rand(2, 4, 5) > 0.5 if masked else None
    assert SliceSort2d(3)(x, mask).is_contiguous(memory_format=torch.channels_last)


def test_maps_of_one_position():
    layer, x = SliceSort2d(3, 4), torch.randn(2, 3, 1, 1)
    torch.testing.assert_close(layer(x), formula(layer, x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_no_maps_and_maps_without_positions(order, shape):
    assert SliceSort2d(3, 4, order)(torch.randn(shape)).shape == (shape[0], 4, *shape[2:])


def test_bfloat16_maps():
    x = torch.randn(2, 2, 3, 4, dtype=torch.bfloat16)
    expected = x.flatten(2).sort(dim=-1).values.view(x.shape)
    assert torch.equal(plain("ascending").bfloat16()(x), expected)


@pytest.mark.parametrize("masked", [False, True])
def test_compiles_to_one_graph(masked):
    torch._dynamo.reset()
    layer, x = SliceSort2d(3, order="interleave", num_layers=2), torch.randn(2, 3, 4, 5)
    mask = torch.rand(2, 4, 5) > 0.5 if masked else None
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask), layer(x, mask))


def test_exports_maps_of_any_size():
    layer, (b, h, w) = SliceSort2d(3), torch.export.dims("b", "h", "w")
    dynamic = {"x": {0: b, 2: h, 3: w}}
    program = torch.export.export(layer, (torch.randn(2, 3, 4, 5),), dynamic_shapes=dynamic)
    x = torch.randn(3, 3, 6, 7)
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_give_the_same_output(duplicate):
    layer, x = SliceSort2d(3, order="interleave", num_layers=2), torch.randn(2, 3, 4, 5)
    assert torch.equal(duplicate(layer)(x), layer(x))


def test_repr_names_channels_and_order():
    assert repr(SliceSort2d(16, 32, "descending")) == "SliceSort2d(16, 32, order=descending)"


MAPS = torch.zeros(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("error", "message", "inputs"),
    [
        (ValueError, r"x has shape \[2, 4, 4, 5\], expected \[B, 3, H, W\]", (MAPS[:, [0] * 4],)),
        (ValueError, r"x has shape \[3, 4, 5\], expected \[B, 3, H, W\]", (MAPS[0],)),
        (TypeError, "SliceSort2d: mask is torch.float32", (MAPS, MAPS[:, 0])),
        (ValueError, r"mask has shape \[4, 5\], expected \[2, 4, 5\]", (MAPS, MAPS[0, 0] > 0)),
    ],
)
def test_wrong_input_is_named(error, message, inputs):
    with pytest.raises(error, match=message):
        SliceSort2d(3)(*inputs)

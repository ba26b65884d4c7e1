"""SliceSort and SliceSort2d against their formula, written out in torch."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor

from slicegraph.nn import SliceSort, SliceSort2d
from slicegraph.nn.slice_sort import ORDERS
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_invariant,
)

SORTS = [name for name, kind in ORDERS.items() if kind is not None]
LENGTHS = (4, 1, 6, 3)
EXACT = {"rtol": 0.0, "atol": 0.0}


def whole(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Small whole numbers: their products and sums are exact, in whatever order they are added."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


def whole_layer(*args, dtype: torch.dtype = torch.float32, **kwargs) -> SliceSort:
    layer = SliceSort(*args, **kwargs).to(dtype)
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(whole(*parameter.shape, seed=i + 1))
    return layer


def ordered(values: Tensor, order: str, layer: int = 1, num_layers: int = 1) -> Tensor:
    """One set `[n, C]` in an order, column by column, from the definitions."""
    columns, channels = [], values.shape[1]
    for i, column in enumerate(values.unbind(1), start=1):
        if order == "max_exchange":
            column = column.clone()
            if len(column):
                top = int(column.argmax())
                column[0], column[top] = column[top].clone(), column[0].clone()
        else:
            wave = math.sin(2 ** (num_layers - layer) * math.pi * i / channels)
            down = wave < -1e-9 if order == "interleave" else order == "descending"
            column = torch.sort(column, descending=down).values
        columns.append(column)
    return torch.stack(columns, 1)


def formula(module: SliceSort, rows: Tensor, order: str, **layers: int) -> Tensor:
    """`Sort(X W_V + b_V) W_O + b_O` of one set."""
    values = ordered(rows @ module.value_proj.weight.T + module.value_proj.bias, order, **layers)
    return values @ module.out_proj.weight.T + module.out_proj.bias


def padded(sets: list[Tensor], fill: float, holes: bool) -> tuple[Tensor, Tensor]:
    """The sets as a dense batch of 8 rows and its mask."""
    mask = torch.zeros(len(sets), 8, dtype=torch.bool)
    for b, rows in enumerate(sets):
        places = (
            torch.randperm(8, generator=torch.Generator().manual_seed(b)) if holes else range(8)
        )
        mask[b, list(places)[: len(rows)]] = True
    x = torch.full((len(sets), 8, sets[0].shape[1]), fill, dtype=sets[0].dtype)
    x[mask] = torch.cat(sets)
    return x, mask


def some_sets(lengths: tuple[int, ...] = LENGTHS, channels: int = 5) -> list[Tensor]:
    return [whole(n, channels, seed=10 + n) for n in lengths]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(6, 5), (3, 6, 5), (2, 3, 6, 5)])
def test_dense_sets_follow_the_formula(order, shape):
    layer, x = whole_layer(5, 7, order=order), whole(*shape)
    expected = torch.stack([formula(layer, rows, order) for rows in x.view(-1, 6, 5)])
    torch.testing.assert_close(layer(x), expected.view(*shape[:-1], 7), **EXACT)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_interleave_takes_its_directions_from_the_layer(layer):
    module, x = whole_layer(5, 8, order="interleave", layer=layer, num_layers=3), whole(6, 5)
    expected = formula(module, x, "interleave", layer=layer, num_layers=3)
    torch.testing.assert_close(module(x), expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("fill", [50.0, math.nan, math.inf])
def test_masked_rows_come_out_as_zeros_and_change_nothing(order, holes, fill):
    layer, sets = whole_layer(5, order=order), some_sets()
    x, mask = padded(sets, fill, holes)
    expected = torch.zeros_like(x)
    expected[mask] = torch.cat([formula(layer, rows, order) for rows in sets])
    torch.testing.assert_close(layer(x, mask), expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
def test_packed_sets_follow_the_formula(order):
    layer, sets = whole_layer(5, order=order), some_sets()
    batch = torch.arange(4).repeat_interleave(torch.tensor(LENGTHS))
    expected = torch.cat([formula(layer, rows, order) for rows in sets])
    torch.testing.assert_close(layer(torch.cat(sets), batch=batch), expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_batch_vector_may_skip_empty_sets(dtype):
    layer, x = whole_layer(5), whole(5, 5)
    batch = torch.tensor([1, 1, 1, 7, 7], dtype=dtype)
    expected = torch.cat([formula(layer, rows, "ascending") for rows in x.split([3, 2])])
    torch.testing.assert_close(layer(x, batch=batch), expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("layout", "holes"), [("dense", False), ("dense", True), ("packed", False)]
)
def test_a_set_is_the_same_alone_as_in_a_batch(order, layout, holes):
    assert_padding_invariant(whole_layer(5, order=order), some_sets(), layout, holes=holes, **EXACT)


@pytest.mark.parametrize("order", SORTS)
@pytest.mark.parametrize("layout", ["dense", "packed"])
def test_a_sort_does_not_depend_on_the_order_of_the_rows(order, layout):
    layer = whole_layer(5, order=order, layer=1, num_layers=3)
    assert_permutation_invariant(layer, some_sets(), layout, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(0, 5), (0, 4, 5), (3, 0, 5), (3, 1, 5)])
def test_sets_of_no_or_one_row(order, shape):
    layer, x = whole_layer(5, order=order), whole(*shape)
    plain = torch.nn.functional.linear(layer.value_proj(x), layer.out_proj.weight)
    expected = plain + layer.out_proj.bias
    torch.testing.assert_close(layer(x), expected, **EXACT)
    mask = torch.ones(shape[:-1], dtype=torch.bool)
    torch.testing.assert_close(layer(x, mask), expected, **EXACT)
    assert not bool(layer(x, ~mask).any())
    rows = x.flatten(0, -2)
    batch = torch.arange(len(rows))
    torch.testing.assert_close(layer(rows, batch=batch), expected.flatten(0, -2), **EXACT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("holes", [False, True])
def test_other_dtypes_follow_the_formula(dtype, holes):
    layer = whole_layer(3, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.clamp_(-1, 1)  # Whole numbers up to 256 are exact in bfloat16.
    sets = [rows.to(dtype) for rows in some_sets(channels=3)]
    x, mask = padded(sets, math.nan, holes)
    out = layer(x, mask)
    assert out.dtype == dtype
    expected = torch.cat([formula(layer, rows, "ascending") for rows in sets])
    torch.testing.assert_close(out[mask], expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("holes", [False, True])
def test_gradients_are_those_of_the_formula(order, holes):
    layer, sets = whole_layer(5, order=order, dtype=torch.float64), some_sets()
    sets = [rows.double() + 0.01 * torch.randn(rows.shape, dtype=torch.float64) for rows in sets]
    x, mask = padded(sets, math.nan, holes)
    leaves = [rows.requires_grad_() for rows in sets]
    parameters = list(layer.parameters())
    weight = torch.randn(sum(LENGTHS), 5, dtype=torch.float64)
    expected_out = torch.cat([formula(layer, rows, order) for rows in leaves])
    expected = torch.autograd.grad(expected_out, leaves + parameters, weight)
    x.requires_grad_()
    found = torch.autograd.grad(layer(x, mask)[mask], [x, *parameters], weight)
    torch.testing.assert_close(found[0][mask], torch.cat(expected[: len(sets)]))
    torch.testing.assert_close(found[1:], expected[len(sets) :])
    assert not bool(found[0][~mask].any())


@pytest.mark.parametrize("order", ORDERS)
def test_backends_agree(order):
    layer = SliceSort(5, order=order)
    x, mask = padded([torch.randn(n, 5) for n in LENGTHS], 50.0, holes=True)
    assert "reference" in assert_backends_agree(layer, x, mask)
    assert "reference" in assert_backends_agree(layer, x[mask], batch=mask.nonzero()[:, 0])


@pytest.fixture
def fresh_compiler():
    """Every case is a graph of its own, and torch keeps only a few of a function."""
    torch._dynamo.reset()


def arguments(layout: str) -> dict[str, Tensor]:
    x, mask = padded(some_sets(), math.nan, holes=True)
    packed = {"x": x[mask], "batch": mask.nonzero()[:, 0]}
    return {"plain": {"x": whole(2, 6, 5)}, "mask": {"x": x, "mask": mask}, "batch": packed}[layout]


@pytest.mark.parametrize(
    ("order", "layout"),
    [*(("interleave", layout) for layout in ("plain", "mask", "batch")), ("max_exchange", "mask")],
)
@pytest.mark.usefixtures("fresh_compiler")
def test_compiles_to_one_graph(order, layout):
    layer, inputs = whole_layer(5, order=order), arguments(layout)
    expected = layer(**inputs)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), layer.value_proj.weight)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out = compiled(**inputs)
    (gradient,) = torch.autograd.grad(out.sum(), layer.value_proj.weight)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradient, expected_gradient, **EXACT)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_packed_sets_must_be_sorted_too():
    compiled = torch.compile(SliceSort(5), fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match=r"not sorted; .*batch\.argsort\(stable=True\)"):
        compiled(torch.randn(4, 5), batch=torch.tensor([0, 1, 0, 1]))


def test_exports_dense_sets_of_any_size():
    layer, (batch, rows) = whole_layer(5, order="interleave"), torch.export.dims("batch", "rows")
    x, mask = padded(some_sets(), math.nan, holes=True)
    dynamic = {"x": {0: batch, 1: rows}, "mask": {0: batch, 1: rows}}
    program = torch.export.export(layer, (x, mask), dynamic_shapes=dynamic)
    x, mask = x[:3, :7], mask[:3, :7]
    torch.testing.assert_close(program.module()(x, mask), layer(x, mask), **EXACT)


def test_bias_and_output_projection_can_be_left_out():
    layer = SliceSort(5, order="interleave", bias=False, out_proj=False)
    assert list(layer.state_dict()) == ["value_proj.weight"]


@pytest.mark.parametrize("kind", [SliceSort, SliceSort2d])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_give_the_same_output(kind, duplicate):
    layer, x = kind(5, order="interleave", num_layers=2), torch.randn(2, 5, 5, 5)
    assert torch.equal(duplicate(layer)(x), layer(x))


def test_a_layer_from_the_meta_device_is_complete_after_reset_parameters():
    with torch.device("meta"):
        layer = SliceSort(8, order="interleave", num_layers=2)
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    x = torch.randn(6, 8)
    expected = formula(layer, x, "interleave", layer=1, num_layers=2)
    torch.testing.assert_close(layer(x), expected)


def test_repr_names_channels_and_order():
    assert repr(SliceSort(16, 32)) == "SliceSort(16, 32, order=ascending)"
    interleave = SliceSort(16, order="interleave", layer=2, num_layers=4)
    assert repr(interleave) == "SliceSort(16, 16, order=interleave, layer=2, num_layers=4)"
    assert repr(SliceSort2d(16, 32, "descending")) == "SliceSort2d(16, 32, order=descending)"


ROWS, VECTOR = torch.zeros(2, 4, 5), torch.zeros(6, 5)
REAL, BATCH = torch.ones(2, 4, dtype=torch.bool), torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(
    ("error", "message", "inputs"),
    [
        (ValueError, r"x has shape \[2, 4, 3\], expected \[..., N, 5\]", (torch.zeros(2, 4, 3),)),
        (ValueError, r"x has shape \[5\]", (torch.zeros(5),)),
        (TypeError, "mask is torch.float32, expected bool", (ROWS, REAL.float())),
        (ValueError, r"mask has shape \[2, 3\], expected \[2, 4\]", (ROWS, REAL[:, :3])),
        (ValueError, "mask .* or batch .* not both", (VECTOR, REAL[0], BATCH)),
        (TypeError, "batch is torch.float32, expected int64", (VECTOR, None, BATCH.float())),
        (ValueError, r"batch of shape \[5\] with x of shape \[6, 5\]", (VECTOR, None, BATCH[:5])),
        (ValueError, r"batch of shape \[6\] with x of shape \[2, 4, 5\]", (ROWS, None, BATCH)),
    ],
)
def test_wrong_input_is_named(error, message, inputs):
    with pytest.raises(error, match=message):
        SliceSort(5)(*inputs)


def test_unsorted_batch_says_where_and_how_to_sort():
    batch = torch.tensor([0, 0, 2, 1, 2, 0])
    message = r"batch\[3\] = 1 follows batch\[2\] = 2; .* perm = batch\.argsort\(stable=True\)"
    with pytest.raises(ValueError, match=message):
        SliceSort(5)(VECTOR, batch=batch)


# Feature maps.


def plain(order: str) -> SliceSort2d:
    """A layer that sorts its input as it is."""
    layer = SliceSort2d(2, order=order, out_proj=False, bias=False)
    with torch.no_grad():
        layer.positions.value_proj.weight.copy_(torch.eye(2))
    return layer


def formula_2d(layer: SliceSort2d, x: Tensor) -> Tensor:
    """Two 1x1 convolutions with the ascending sort of all positions between them."""
    value, out = layer.positions.value_proj, layer.positions.out_proj
    maps = torch.nn.functional.conv2d(x, value.weight[:, :, None, None], value.bias)
    maps = maps.flatten(2).sort(dim=-1).values.view(maps.shape)
    return torch.nn.functional.conv2d(maps, out.weight[:, :, None, None], out.bias)


def test_maps_and_their_gradients_follow_the_formula():
    layer = SliceSort2d(3, 5).double()
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 4, 6, dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    expected = torch.autograd.grad(formula_2d(layer, x), leaves, weight)
    torch.testing.assert_close(layer(x), formula_2d(layer, x))
    torch.testing.assert_close(torch.autograd.grad(layer(x), leaves, weight), expected)


def test_masked_positions_come_out_as_zeros_and_take_no_part():
    x = torch.tensor([[3.0, -9.0, 5.0], [9.0, 2.0, 4.0]]).expand(1, 2, 2, 3)
    mask = torch.tensor([[[True, False, True], [False, True, True]]])
    expected = torch.tensor([[2.0, 0.0, 3.0], [0.0, 4.0, 5.0]]).expand(1, 2, 2, 3)
    torch.testing.assert_close(plain("ascending")(x, mask), expected, rtol=0, atol=0)


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


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_no_maps_and_maps_without_positions(order, shape):
    assert SliceSort2d(3, 4, order)(torch.randn(shape)).shape == (shape[0], 4, *shape[2:])


def test_maps_compile_to_one_graph():
    torch._dynamo.reset()
    layer, x = SliceSort2d(3, order="interleave", num_layers=2), torch.randn(2, 3, 4, 5)
    mask = torch.rand(2, 4, 5) > 0.5
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask), layer(x, mask))


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
def test_wrong_maps_are_named(error, message, inputs):
    with pytest.raises(error, match=message):
        SliceSort2d(3)(*inputs)

"""SliceSort against its formula, written out in torch."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor

from slicegraph.nn import SliceSort
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_equivariant,
    assert_permutation_invariant,
)

ORDERS = ["ascending", "descending", "interleave", "max_exchange"]
SORTS = ORDERS[:3]
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
def test_one_set_follows_the_formula(order):
    layer, x = whole_layer(5, 7, order=order), whole(6, 5)
    torch.testing.assert_close(layer(x), formula(layer, x, order), **EXACT)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_interleave_takes_its_directions_from_the_layer(layer):
    module, x = whole_layer(5, 8, order="interleave", layer=layer, num_layers=3), whole(6, 5)
    expected = formula(module, x, "interleave", layer=layer, num_layers=3)
    torch.testing.assert_close(module(x), expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
def test_every_set_of_a_dense_batch_is_ordered_by_itself(order):
    layer, x = whole_layer(5, order=order), whole(3, 6, 5)
    expected = torch.stack([formula(layer, rows, order) for rows in x])
    torch.testing.assert_close(layer(x), expected, **EXACT)


def test_more_leading_dimensions_are_more_sets():
    layer, x = whole_layer(5), whole(2, 3, 6, 5)
    expected = torch.stack([formula(layer, rows, "ascending") for rows in x.flatten(0, 1)])
    torch.testing.assert_close(layer(x), expected.view(2, 3, 6, 5), **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("fill", [0.0, 50.0, -50.0, math.nan, math.inf])
def test_masked_rows_come_out_as_zeros_and_change_nothing(order, holes, fill):
    layer, sets = whole_layer(5, order=order), some_sets()
    x, mask = padded(sets, fill, holes)
    expected = torch.zeros_like(x)
    expected[mask] = torch.cat([formula(layer, rows, order) for rows in sets])
    torch.testing.assert_close(layer(x, mask), expected, **EXACT)


@pytest.mark.parametrize("holes", [False, True])
def test_masked_rows_come_out_as_zeros_without_an_output_projection(holes):
    layer, sets = whole_layer(5, out_proj=False), some_sets()
    x, mask = padded(sets, 50.0, holes)
    values = [rows @ layer.value_proj.weight.T + layer.value_proj.bias for rows in sets]
    expected = torch.zeros_like(x)
    expected[mask] = torch.cat([ordered(v, "ascending") for v in values])
    torch.testing.assert_close(layer(x, mask), expected, **EXACT)


def test_the_jth_smallest_value_lands_in_the_jth_real_position():
    layer = SliceSort(1, out_proj=False, bias=False)
    torch.nn.init.ones_(layer.value_proj.weight)
    x = torch.tensor([[[9.0], [3.0], [7.0], [1.0], [5.0]]])
    mask = torch.tensor([[False, True, False, True, True]])
    assert layer(x, mask).flatten().tolist() == [0.0, 1.0, 0.0, 3.0, 5.0]


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


@pytest.mark.parametrize("order", SORTS)
def test_a_sort_does_not_follow_the_order_of_the_rows(order):
    with pytest.raises(AssertionError, match="not permuted like its rows"):
        assert_permutation_equivariant(whole_layer(5, order=order), some_sets())


@pytest.mark.parametrize("law", [assert_permutation_invariant, assert_permutation_equivariant])
def test_max_exchange_depends_on_the_order_of_the_rows(law):
    with pytest.raises(AssertionError):
        law(whole_layer(5, order="max_exchange"), some_sets())


def test_max_exchange_follows_permutations_that_keep_the_first_row():
    # Only with distinct values: the first of several maxima may be another one afterwards.
    layer = SliceSort(3, order="max_exchange").double()
    x, perm = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 4, 2, 5, 1, 3])
    torch.testing.assert_close(layer(x[perm]), layer(x)[perm])


def test_max_exchange_has_a_first_row_that_no_permutation_changes():
    layer, x = whole_layer(5, order="max_exchange"), whole(6, 5)
    torch.testing.assert_close(layer(x.flip(0))[0], layer(x)[0], **EXACT)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (0, 4, 5), (3, 0, 5), (3, 1, 5)])
def test_sets_of_no_or_one_row(order, shape):
    layer, x = whole_layer(5, order=order), whole(*shape)
    plain = torch.nn.functional.linear(layer.value_proj(x), layer.out_proj.weight)
    expected = plain + layer.out_proj.bias
    torch.testing.assert_close(layer(x), expected, **EXACT)
    mask = torch.ones(shape[:-1], dtype=torch.bool)
    torch.testing.assert_close(layer(x, mask), expected, **EXACT)


@pytest.mark.parametrize("order", ORDERS)
def test_a_set_without_a_real_row_comes_out_as_zeros(order):
    out = SliceSort(5, order=order)(torch.randn(2, 4, 5), torch.zeros(2, 4, dtype=torch.bool))
    assert torch.equal(out, torch.zeros(2, 4, 5))


@pytest.mark.parametrize("order", ORDERS)
def test_no_packed_rows(order):
    out = SliceSort(5, order=order)(torch.randn(0, 5), batch=torch.empty(0, dtype=torch.int64))
    assert out.shape == (0, 5)


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


@pytest.mark.parametrize("holes", [False, True])
def test_padding_receives_no_gradient(holes):
    x, mask = padded(some_sets(), 50.0, holes)
    x.requires_grad_()
    SliceSort(5)(x, mask).square().sum().backward()
    assert torch.equal(x.grad[~mask], torch.zeros(int((~mask).sum()), 5))


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


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", ["plain", "mask", "batch"])
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
def test_compiles_with_inductor():
    layer, inputs = whole_layer(5, order="interleave"), arguments("mask")
    out = torch.compile(layer, fullgraph=True)(**inputs)
    torch.testing.assert_close(out, layer(**inputs), **EXACT)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_packed_sets_must_be_sorted_too():
    compiled = torch.compile(SliceSort(5), fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match=r"not sorted; .*batch\.argsort\(stable=True\)"):
        compiled(torch.randn(4, 5), batch=torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("order", ["interleave", "max_exchange"])
def test_exports_dense_sets_of_any_size(order):
    layer, (batch, rows) = whole_layer(5, order=order), torch.export.dims("batch", "rows")
    x, mask = padded(some_sets(), math.nan, holes=True)
    dynamic = {"x": {0: batch, 1: rows}, "mask": {0: batch, 1: rows}}
    program = torch.export.export(layer, (x, mask), dynamic_shapes=dynamic)
    x, mask = x[:3, :7], mask[:3, :7]
    torch.testing.assert_close(program.module()(x, mask), layer(x, mask), **EXACT)


@pytest.mark.parametrize("order", ["interleave", "max_exchange"])
def test_exports_packed_sets_of_any_size(order):
    layer, total = whole_layer(5, order=order), torch.export.Dim("total")
    inputs = arguments("batch")
    dynamic = {"x": {0: total}, "batch": {0: total}}
    program = torch.export.export(layer, (), inputs, dynamic_shapes=dynamic)
    x, batch = whole(7, 5), torch.tensor([0, 0, 0, 2, 2, 5, 5])
    torch.testing.assert_close(program.module()(x=x, batch=batch), layer(x, batch=batch), **EXACT)


def test_out_channels_are_those_of_both_projections():
    layer = SliceSort(5, 7)
    assert layer.value_proj.weight.shape == (7, 5)
    assert layer.out_proj.weight.shape == (7, 7)
    assert SliceSort(5).out_proj.weight.shape == (5, 5)


def test_bias_and_output_projection_can_be_left_out():
    assert list(SliceSort(5, bias=False, out_proj=False).state_dict()) == ["value_proj.weight"]


def test_the_directions_are_not_part_of_the_state():
    source = SliceSort(5, order="interleave", num_layers=2)
    assert set(source.state_dict()) == set(SliceSort(5).state_dict())
    target = SliceSort(5, order="interleave", num_layers=2)
    target.load_state_dict(source.state_dict())
    x = torch.randn(6, 5)
    assert torch.equal(target(x), source(x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_give_the_same_output(order, duplicate):
    layer, x = SliceSort(5, order=order, num_layers=2), torch.randn(6, 5)
    assert torch.equal(duplicate(layer)(x), layer(x))


def test_reset_parameters_draws_like_the_constructor():
    torch.manual_seed(3)
    layer = SliceSort(5, order="interleave")
    expected = copy.deepcopy(layer.state_dict())
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.testing.assert_close(layer.state_dict(), expected, **EXACT)


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


def test_unknown_order_names_the_valid_ones():
    expected = "unknown order 'up', expected one of ascending, descending, interleave, max_exchange"
    with pytest.raises(ValueError, match=expected):
        SliceSort(5, order="up")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("layer", "num_layers"), [(0, 2), (3, 2), (1, 0)])
def test_layer_must_be_one_of_the_layers(order, layer, num_layers):
    with pytest.raises(ValueError, match=rf"layer = {layer} is not in 1\.\.{num_layers}"):
        SliceSort(5, order=order, layer=layer, num_layers=num_layers)


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

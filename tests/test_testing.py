"""The assertions of slicegraph.testing: what keeps a law passes, what breaks it is reported."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from slicegraph.ops import column_sort, reference
from slicegraph.ops.operator import BACKENDS
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_equivariant,
    assert_permutation_invariant,
)

SETS = [torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (4, 2, 5)]


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)


def packed_sum(x: Tensor, batch: Tensor) -> Tensor:
    return x.new_zeros(int(batch.max()) + 1, x.shape[1]).index_add(0, batch, x)


def double(x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
    return 2 * x


def sort_with_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x.sort(dim=1).values


def first_rows(x: Tensor, mask: Tensor) -> Tensor:
    return x[:, 0]


@pytest.mark.parametrize(
    ("module", "layout"),
    [(masked_mean, "dense"), (double, "dense"), (packed_sum, "packed"), (double, "packed")],
)
def test_padding_invariance_holds_for_rows_and_for_sets(module, layout):
    assert_padding_invariant(module, SETS, layout, holes=layout == "dense")


NORM = torch.nn.BatchNorm1d(3)
LAWS = {
    "padding": assert_padding_invariant,
    "invariant": assert_permutation_invariant,
    "equivariant": assert_permutation_equivariant,
}


@pytest.mark.parametrize(
    ("law", "module", "layout", "message"),
    [
        ("padding", sort_with_padding, "dense", "set 0 changes in a batch as Dense"),
        ("padding", lambda x, mask: NORM(x.mT).mT, "dense", "Greatest absolute difference"),
        ("padding", lambda x, batch: x - x.mean(0), "packed", "set 0 changes in a batch"),
        ("invariant", first_rows, "dense", "set 0 changes when its rows are permuted"),
        ("equivariant", lambda x, mask: x.cumsum(1), "dense", "set 0 is not permuted like its"),
        ("equivariant", masked_mean, "dense", r"set 0 has 4 rows, but its output has shape \[3\]"),
    ],
)
def test_module_that_breaks_a_law_is_found(law, module, layout, message):
    options = {} if law == "padding" else {"trials": 1}
    with pytest.raises(AssertionError, match=message):
        LAWS[law](module, SETS, layout, **options)


def test_padding_between_the_rows_is_tried_only_if_asked_for():
    assert_padding_invariant(first_rows, SETS)
    with pytest.raises(AssertionError, match="holes=True"):
        assert_padding_invariant(first_rows, SETS, holes=True)


def test_a_difference_is_reported_with_its_size_and_place():
    def adds_one_to_the_second_set(x: Tensor, mask: Tensor) -> Tensor:
        out = x.clone()
        out[1:2, 1, 2] += 1
        return out

    with pytest.raises(AssertionError) as error:
        assert_padding_invariant(adds_one_to_the_second_set, SETS, rtol=0, atol=0.5)
    assert str(error.value).startswith("set 1 changes in a batch as Dense(fill=0.0, extra_rows=0")
    assert "Greatest absolute difference: 1.0 at index (1, 2) (up to 0.5 allowed)" in str(
        error.value
    )


@pytest.mark.parametrize("law", [assert_padding_invariant, assert_permutation_invariant])
def test_a_function_can_stand_for_the_layout(law):
    def one_by_one(module, sets):
        return [module(rows) for rows in sets]

    law(lambda rows: rows.amax(0), SETS, one_by_one)


@pytest.mark.parametrize(("module", "layout"), [(masked_mean, "dense"), (packed_sum, "packed")])
def test_permutation_invariance_of_a_readout(module, layout):
    assert_permutation_invariant(module, SETS, layout)


@pytest.mark.parametrize("layout", ["dense", "packed"])
def test_permutation_equivariance_of_a_function_of_rows(layout):
    assert_permutation_equivariant(double, SETS, layout)


def graph(num_nodes: int) -> SimpleNamespace:
    """A ring of nodes with a number each."""
    nodes = torch.arange(num_nodes)
    edges = torch.stack([nodes, nodes.roll(1)])
    return SimpleNamespace(num_nodes=num_nodes, x=nodes.float() ** 2, edge_index=edges)


def renumber(data: SimpleNamespace, perm: Tensor) -> SimpleNamespace:
    edges = perm.argsort()[data.edge_index]
    return SimpleNamespace(num_nodes=data.num_nodes, x=data.x[perm], edge_index=edges)


def neighbour_sums(data: SimpleNamespace) -> Tensor:
    source, target = data.edge_index
    return torch.zeros_like(data.x).index_add(0, target, data.x[source])


def test_graphs_are_permuted_by_a_function():
    graphs = [graph(4), graph(6)]

    def each(module, samples):
        return [module(data) for data in samples]

    assert_permutation_equivariant(neighbour_sums, graphs, each, permute=renumber)
    with pytest.raises(AssertionError):
        assert_permutation_invariant(neighbour_sums, graphs, each, permute=renumber)


@pytest.mark.parametrize(
    ("module", "sets", "layout", "message"),
    [
        (double, SETS, "sparse", "unknown layout 'sparse', expected 'dense', 'packed' or"),
        (lambda x, batch: x[1:], SETS, "packed", "an output of 3 rows for 4 rows in 1 sets"),
        (lambda x, mask: x[:, :1].flatten(0, 1)[:0], SETS, "dense", r"an output of shape \[0, 3\]"),
        (double, [SETS[0][:0], SETS[0][:2]], "packed", "2 rows in 2 sets: .*cannot be told"),
    ],
)
def test_batch_or_output_that_cannot_be_read_is_named(module, sets, layout, message):
    with pytest.raises(ValueError, match=message):
        assert_padding_invariant(module, sets, layout)


def flipped_sort(x, *rest):
    values, indices = reference.column_sort(x, *rest)
    return values.flip(-2), indices


def sort_without_gradient(g, *rest):
    return torch.zeros_like(g)


@pytest.fixture
def only_reference():
    before = dict(BACKENDS)
    BACKENDS.clear()
    BACKENDS["reference"] = before["reference"]
    yield
    BACKENDS.clear()
    BACKENDS.update(before)  # in its order: the first that serves a device is chosen


@pytest.fixture
def another_backend(monkeypatch, only_reference):
    def add(**operators):
        dtypes = dict.fromkeys(operators, (torch.float32,))
        backend = SimpleNamespace(problem=lambda device_type: None, DTYPES=dtypes, **operators)
        monkeypatch.setitem(BACKENDS, "other", backend)

    return add


def test_all_backends_are_compared(another_backend):
    another_backend(column_sort=reference.column_sort)
    assert set(assert_backends_agree(column_sort, SETS[0])) == {"other", "reference"}


@pytest.mark.usefixtures("only_reference")
def test_one_backend_agrees_with_itself():
    assert assert_backends_agree(column_sort, SETS[0]) == ["reference"]


def test_a_backend_with_other_values_is_found(another_backend):
    another_backend(column_sort=flipped_sort)
    message = r"(?s)backend 'other' differs from the reference in the output 0.*Greatest absolute"
    with pytest.raises(AssertionError, match=message):
        assert_backends_agree(column_sort, SETS[0])


def test_a_backend_with_other_gradients_is_found(another_backend):
    another_backend(column_scatter=sort_without_gradient)
    with pytest.raises(AssertionError, match="differs from the reference in the gradient of x"):
        assert_backends_agree(column_sort, x=SETS[0], return_indices=False)


def test_a_backend_with_other_parameter_gradients_is_found(another_backend):
    class Sorted(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return column_sort(super().forward(x), return_indices=False)

    another_backend(column_scatter=sort_without_gradient)
    with pytest.raises(AssertionError, match="gradient of"):
        assert_backends_agree(Sorted(3, 2), SETS[0])


def test_random_functions_draw_the_same_on_every_backend(another_backend):
    another_backend(column_sort=reference.column_sort)
    assert_backends_agree(lambda x: column_sort(torch.dropout(x, 0.5, True))[0], SETS[0])


def test_functions_without_gradient_are_compared_by_their_output(another_backend):
    another_backend(column_sort=flipped_sort)
    with pytest.raises(AssertionError, match="output 0"):
        assert_backends_agree(lambda x: column_sort(x.detach())[0], SETS[0])

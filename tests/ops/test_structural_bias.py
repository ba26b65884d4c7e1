"""S + E of all pairs, against the formula pair by pair."""

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import ShortestPaths, paths, reference, shortest_paths


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    with running(request.param):
        yield request.param


def graphs(sizes: list[int], clip: int = 254, hops: int = 3) -> tuple[ShortestPaths, Tensor]:
    """Sparse random graphs: some nodes cannot be reached, some graphs have no edge."""
    generator = torch.Generator().manual_seed(len(sizes))
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    edges = [
        first + torch.randint(size, (2, size - 1), generator=generator)
        for first, size in zip(ptr[:-1].tolist(), sizes, strict=True)
        if size > 1
    ]
    edge_index = torch.cat([torch.empty(2, 0, dtype=torch.int64), *edges], 1)
    return shortest_paths(edge_index, ptr, clip, hops), ptr


def tables(
    encoding: ShortestPaths, hops: int, far: int, token: bool, empty: bool, dtype=torch.float64
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    edges = int(encoding.edge_ptr[-1]) + empty
    table = torch.randn(far + 2 + token, 3).to(dtype).requires_grad_()
    return table, torch.randn(edges, hops, 3).to(dtype).requires_grad_()


def structural_bias(*arguments) -> Tensor:
    *first, token, empty, padding = arguments
    return paths.structural_bias(*first, token=token, empty=empty, padding=padding)


def formula(table, products, encoding, ptr, length, far, token, empty, padding) -> Tensor:
    sizes, hops = ptr.diff().tolist(), products.shape[1]
    out = torch.full((len(sizes), length, length, 3), padding, dtype=table.dtype)
    out, pair = list(out.flatten(0, 2)), 0
    for b, n in enumerate(sizes):
        place = lambda i, j, b=b: (b * length + i) * length + j  # noqa: E731
        for k in range(n + 1) if token else ():
            out[place(0, k)] = out[place(k, 0)] = table[-1]
        for i in range(n):
            for j in range(n):
                distance, path = int(encoding.distance[pair]), encoding.path[pair].tolist()
                reached = path[0] >= 0 or distance == 0
                entry = min(distance, far) if reached else far + 1
                sum_ = torch.zeros(3, dtype=table.dtype)
                for k, step in enumerate(path[:hops]):
                    if step >= 0:
                        sum_ = sum_ + products[int(encoding.edge_ptr[b]) + step, k]
                    elif empty:
                        sum_ = sum_ + products[-1, k]
                out[place(i + token, j + token)] = table[entry] + sum_ / max(1, min(entry, hops))
                pair += 1
    return torch.stack(out).view(len(sizes), length, length, 3).permute(0, 3, 1, 2)


CASES = {
    "plain": ([3, 1, 5], {}),
    "token": ([3, 1, 5], {"token": True}),
    "empty hops": ([4, 2, 1], {"empty": True}),
    "both": ([4, 2, 1], {"token": True, "empty": True}),
    "far": ([9, 2], {"far": 2}),
    "one hop": ([9, 2], {"hops": 1}),
    "no hops": ([4, 3], {"hops": 0}),
    "clipped encoding": ([9, 2], {"far": 3, "clip": 300}),
    "room to spare": ([3, 1], {"length": 7, "padding": -5.0}),
    "more graphs than a task has": ([2, 3, 4] * 9, {"token": True}),
    "no graph": ([], {"length": 0}),
    "a graph without nodes": ([0, 2], {"token": True}),
}


def case(name: str, dtype: torch.dtype = torch.float64):
    sizes, options = CASES[name]
    hops, far = options.get("hops", 3), options.get("far", 254)
    token, empty = options.get("token", False), options.get("empty", False)
    encoding, ptr = graphs(sizes, options.get("clip", 254))
    length = options.get("length", max(sizes, default=0) + token)
    rest = (encoding, ptr, length, far, token, empty, options.get("padding", -1e9))
    return *tables(encoding, hops, far, token, empty, dtype), *rest


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_formula(backend, name):
    table, products, *rest = case(name)
    out = structural_bias(table, products, *rest)
    if not CASES[name][0]:
        assert out.shape == (0, 3, 0, 0)
        return
    expected = formula(table, products, *rest)
    torch.testing.assert_close(out, expected)
    grad_out = torch.randn_like(out)
    found = torch.autograd.grad(out, (table, products), grad_out)
    whole = expected + 0 * (table.sum() + products.sum())
    torch.testing.assert_close(found, torch.autograd.grad(whole, (table, products), grad_out))


@pytest.mark.parametrize("name", ["both", "far"])
def test_first_and_second_gradient_are_right(backend, name):
    table, products, *rest = case(name)
    rest[-1] = 0.0
    pair, run = (table, products), lambda t, p: structural_bias(t, p, *rest).square()
    assert gradcheck(run, pair, fast_mode=True)
    assert gradgradcheck(run, pair, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_types(backend, dtype):
    table, products, *rest = case("token", dtype)
    out = structural_bias(table, products, *rest)
    expected = formula(table.double(), products.double(), *rest)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-5
    real = expected > -1e8
    torch.testing.assert_close(out.double()[real], expected[real], rtol=tolerance, atol=tolerance)
    assert out.dtype == dtype


def test_the_same_bits_with_any_number_of_threads():
    encoding, ptr = graphs([20, 3, 40] * 30)
    arguments = tables(encoding, 3, 254, True, True, torch.float32)
    threads, found = torch.get_num_threads(), []
    grad_out = torch.randn(90, 3, 41, 41)
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            out = structural_bias(*arguments, encoding, ptr, 41, 254, True, True, -1.0)
            found.append((out, *torch.autograd.grad(out, arguments, grad_out)))
    finally:
        torch.set_num_threads(threads)
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, found[0], strict=True))


def test_wide_paths_and_narrow_ones_are_read_alike(backend):
    table, products, encoding, *rest = case("both")
    expected = structural_bias(table, products, encoding, *rest)
    for path, distance in ((torch.int32, torch.int16), (torch.int64, torch.int64)):
        wide = encoding._replace(
            path=encoding.path.to(path), distance=encoding.distance.to(distance)
        )
        assert torch.equal(structural_bias(table, products, wide, *rest), expected)


def test_a_step_that_is_no_edge_is_named(backend):
    table, products, encoding, *rest = case("plain")
    encoding.path[4, 0] = 77
    with pytest.raises(IndexError, match=r"path\[4, 0\] = 77 is none of the 2 edges"):
        structural_bias(table, products, encoding, *rest)


def test_an_encoding_of_other_graphs_is_named(backend):
    table, products, encoding, ptr, *rest = case("plain")
    with pytest.raises(ValueError, match="35 pairs and 6 edges, expected 81"):
        structural_bias(table, products, encoding, torch.tensor([0, 0, 0, 9]), 9, *rest[1:])
    with pytest.raises(ValueError, match="length = 4, but a graph has 5 rows"):
        structural_bias(table, products, encoding, ptr, 4, *rest[1:])


def test_tensors_that_do_not_fit_are_named():
    table, products, *rest = case("plain")
    for wrong in ((table[:-1], products), (table, products.float()), (table, products[..., :2])):
        with pytest.raises(ValueError, match=r"structural_bias: (table|products) of shape"):
            structural_bias(*wrong, *rest)


def test_the_kernel_is_used_where_it_is_built(monkeypatch):
    def refuse(*arguments):
        raise AssertionError

    monkeypatch.setattr(reference, "structural_bias", refuse)
    with running("cpu"):
        structural_bias(*case("both"))


def test_compiles_as_one_graph_with_gradients():
    compiled = torch.compile(structural_bias, fullgraph=True, backend="aot_eager", dynamic=True)
    table, products, *rest = case("both")
    actual, expected = (run(table, products, *rest) for run in (compiled, structural_bias))
    torch.testing.assert_close(actual, expected)
    grad_out = torch.randn_like(expected)
    found = torch.autograd.grad(actual, (table, products), grad_out)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (table, products), grad_out))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_a_negative_distance_is_named(backend, dtype):
    ptr = torch.tensor([0, 2])
    encoding = shortest_paths(torch.tensor([[0, 1], [1, 0]]), ptr)
    distance = encoding.distance.to(dtype)
    distance[1] = -1
    table, products = torch.zeros(3, 1), torch.zeros(2, 1, 1)
    with pytest.raises(IndexError, match=r"distance\[1\] = -1, expected 0 or more"):
        paths.structural_bias(
            table, products, encoding._replace(distance=distance), ptr, length=2, max_distance=1
        )


@pytest.mark.parametrize("edge_ptr", [[1, 2], [0, -1]])
def test_an_edge_ptr_that_does_not_start_at_0_or_descends_is_refused(backend, edge_ptr):
    ptr = torch.tensor([0, 2])
    encoding = shortest_paths(torch.tensor([[0, 1], [1, 0]]), ptr)
    wrong = encoding._replace(edge_ptr=torch.tensor(edge_ptr))
    with pytest.raises(ValueError, match="edge_ptr must start at 0 and ascend"):
        paths.structural_bias(
            torch.zeros(3, 1), torch.zeros(2, 1, 1), wrong, ptr, length=2, max_distance=1
        )

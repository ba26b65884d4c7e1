"""The law of backends: they differ in speed alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import available, use_backend
from slicegraph.testing.compare import compare


def assert_backends_agree(
    function: Callable,
    *args: Any,
    rtol: float = 0.0,
    atol: float = 0.0,
    **kwargs: Any,
) -> list[str]:
    """Asserts that every backend of the device gives the outputs and gradients of the reference.

    Args:
        function: a module, or any function that returns a tensor or a tuple of tensors.
        *args, **kwargs: its arguments. Gradients are compared for those that are tensors of
            floating-point numbers, and for the parameters of a module.
        rtol, atol: 0 unless told, as the backends differ in no bit; a function that adds numbers
            up in a different order from run to run needs more.

    Returns:
        The names of the backends that were compared; ``["reference"]`` if there is no other.

    Example:
        >>> assert_backends_agree(SliceSort(8), torch.randn(2, 5, 8))
        ['cpu', 'reference']
    """
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    names = available(tensors[0].device.type if tensors else "cpu")
    results = {name: _run_on(name, function, args, kwargs) for name in names}
    for name in names:
        for what, expected in results["reference"].items():
            problem = f"backend {name!r} differs from the reference in the {what}"
            compare(problem, results[name][what], expected, rtol, atol)
    return names


def _run_on(
    name: str, function: Callable, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Tensor]:
    """The outputs and gradients on a backend, by what they are."""
    leaves: dict[str, Tensor] = {}

    def leaf(what: str, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            value = leaves[what] = value.detach().clone().requires_grad_()
        return value

    args = [leaf(f"gradient of argument {i}", value) for i, value in enumerate(args)]
    kwargs = {key: leaf(f"gradient of {key}", value) for key, value in kwargs.items()}
    if isinstance(function, torch.nn.Module):
        leaves |= {f"gradient of {n}": p for n, p in function.named_parameters() if p.requires_grad}
    with use_backend(name), torch.random.fork_rng():
        torch.manual_seed(0)
        out = function(*args, **kwargs)
        outputs = [out] if isinstance(out, Tensor) else [o for o in out if isinstance(o, Tensor)]
        gradients = _gradients(outputs, leaves)
    return {f"output {i}": o.detach() for i, o in enumerate(outputs)} | gradients


def _gradients(outputs: list[Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of a random weighting of the outputs."""
    smooth = [o for o in outputs if o.requires_grad]
    if not smooth or not leaves:
        return {}
    weights = [torch.randn_like(o) for o in smooth]
    found = torch.autograd.grad(smooth, list(leaves.values()), weights, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))

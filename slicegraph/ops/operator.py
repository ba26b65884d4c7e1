"""An operator as torch sees it: one schema, one fake and one gradient.

A call costs microseconds, and small sets are sorted in fewer. So what nobody watches (no compiler,
no dispatch mode, no tensor subclass) goes straight to the backend, and gradients are
`torch.autograd.Function`s: the wrapper that `torch.library.register_autograd` builds costs
20 microseconds a call more, and `Function.apply`, which looks for functorch once more, 2.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from slicegraph.ops.backends import implementation

_library = torch.library.Library("slicegraph", "DEF")
_PLAIN = (Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack


def _watched(x: Tensor) -> bool:
    """Whether anything but autograd wants to see the operators that are called."""
    return (
        _is_compiling()
        or type(x) not in _PLAIN
        or x.is_neg()
        or _tracing_state() is not None
        or _dispatch_modes() > 0
        or _functorch_level() is not None
    )


def _differentiated(x: Tensor) -> bool:
    # In forward mode the Function, which has no jvp, says so instead of losing the tangent.
    return (torch.is_grad_enabled() and x.requires_grad) or forward_ad._current_level >= 0


def unobserved(*tensors: Tensor) -> bool:
    """Whether nothing, not even autograd, wants to see an operator that is called with these."""
    return not (_watched(tensors[0]) or any(map(_differentiated, tensors)))


class Gradient(torch.autograd.Function):
    """Its forward pass takes `run`, a function of a backend or of torch: the operator itself."""

    operator: str


class Operator:
    """One operator of torch's `slicegraph` namespace.

    Args:
        name, arguments, returns: its schema. The first argument is a tensor that has a gradient;
            with `two`, so does the second.
        fake: what it returns, as to shapes and types.
    """

    def __init__(
        self, name: str, arguments: str, returns: str, fake: Callable[..., Any], two: bool = False
    ) -> None:
        self.name, self.two = name, two
        _library.define(f"{name}({arguments}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            _library.impl(name, self._run, key)
        _library.impl(name, self._differentiate, "Autograd")
        torch.library.register_fake(f"slicegraph::{name}", fake, lib=_library)
        self.op = getattr(torch.ops.slicegraph, name).default

    def __call__(self, x: Tensor, *rest: Any) -> Any:
        if _watched(x):
            return self.op(x, *rest)
        if _differentiated(x) or (self.two and _differentiated(rest[0])):
            return self.apply(implementation(self.gradient.operator, x), x, *rest)
        return implementation(self.name, x)(x, *rest)

    def differentiate_with(self, gradient: type[Gradient]) -> None:
        """Sets the function that records how to differentiate a call."""
        self.gradient = gradient
        self.apply = super(torch.autograd.Function, gradient).apply  # type: ignore[misc]

    def _differentiate(self, x: Tensor, *rest: Any) -> Any:
        if _differentiated(x) or (self.two and _differentiated(rest[0])):
            op = getattr(torch.ops.slicegraph, self.gradient.operator).default
            return self.gradient.apply(partial(_below_autograd, op), x, *rest)
        return _below_autograd(self.op, x, *rest)

    def _run(self, x: Tensor, *rest: Any) -> Any:
        return implementation(self.name, x)(x, *rest)


def _below_autograd(op: Callable[..., Any], *arguments: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)

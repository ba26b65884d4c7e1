"""Which code runs an operator, and how torch sees it.

Backends are `reference` (torch), `cpu` (C++) and `triton` (CUDA). The fastest available one of the
tensor's device is used. `SLICEGRAPH_BACKEND=reference` in the environment, or
`with use_backend("reference"):` around some lines, forces one.

A call costs microseconds, and small sets are sorted in fewer. So a call that nothing observes (no
compiler, no dispatch mode, no tensor subclass) goes straight to the backend, and gradients are
`torch.autograd.Function`s: the wrapper that `torch.library.register_autograd` builds costs
20 microseconds a call more, and `Function.apply`, which looks for functorch once more, 2.
"""

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from slicegraph.ops import cpu, reference, triton
from slicegraph.ops.layout import AS_ON_GPU, PLAIN, OptTensor, plain

_library = torch.library.Library("slicegraph", "DEF")
BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "triton": triton, "reference": reference}
_forced: str | None = os.environ.get("SLICEGRAPH_BACKEND") or None
_chosen: dict[str, ModuleType] = {}
_implementations: dict[tuple[Any, ...], Any] = {}


def problem(name: str, device_type: str) -> str | None:
    """Why a backend cannot serve tensors of a device, or None if it can."""
    return BACKENDS[name].problem(device_type)


def available(device_type: str) -> list[str]:
    """The backends that can serve tensors of a device, fastest first."""
    return [name for name in BACKENDS if problem(name, device_type) is None]


def default(device_type: str) -> str:
    """The backend that serves tensors of a device when none is forced."""
    return next(n for n in available(device_type) if device_type in BACKENDS[n].AUTOMATIC)


def choose(device_type: str) -> ModuleType:
    """The backend in force for tensors of a device."""
    if device_type not in _chosen:
        name = default(device_type) if _forced is None else _forced
        reason = problem(name, device_type) if name in BACKENDS else "there is no such backend"
        if reason is not None:
            raise ValueError(
                f"SLICEGRAPH_BACKEND: {name!r} cannot serve {device_type} tensors: {reason}; "
                f"available: {', '.join(available(device_type))}"
            )
        if _forced is None and device_type == "cpu" and name == "reference" and not _is_compiling():
            _warn_once(str(problem("cpu", "cpu")))
        _chosen[device_type] = BACKENDS[name]
    return _chosen[device_type]


@functools.cache
def _warn_once(reason: str) -> None:
    # pip does not show the warning of a build that found no compiler.
    message = f"{reason}. Until then the operators run on torch, many times as slow"
    warnings.warn(f"slicegraph: {message}", RuntimeWarning, stacklevel=6)


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run every slicegraph operator inside the `with` block on one backend.

    Example:
        >>> with use_backend("reference"):
        ...     values = column_sort(x, return_indices=False)
    """
    before = _forced
    _force(name)
    try:
        yield
    finally:
        _force(before)


@contextlib.contextmanager
def as_on_gpu() -> Iterator[None]:
    """Run the code of a GPU on CPU tensors, by the reference backend, inside the `with` block.

    It is for tests on a machine without a GPU: sets are padded, and no value of a tensor is read.

    Example:
        >>> with as_on_gpu():
        ...     loss = model(batch).sum()
    """
    before = AS_ON_GPU[0]
    AS_ON_GPU[0] = True
    try:
        with use_backend("reference"):
            yield
    finally:
        AS_ON_GPU[0] = before


def _force(name: str | None) -> None:
    global _forced
    _forced = name
    _chosen.clear()
    _implementations.clear()


def has_kernel(operator: str, device_type: str, dtype: torch.dtype) -> bool:
    """Whether the backend in force has a kernel of an operator for tensors of a type."""
    return dtype in choose(device_type).DTYPES.get(operator, ())


def implementation(operator: str, x: Tensor) -> Any:
    """The function that runs an operator on tensors like `x`; without a kernel, the reference."""
    key = (operator, x.dtype) if x.is_cpu else (operator, x.dtype, x.device.type)
    found = _implementations.get(key)
    if found is None:
        serves = has_kernel(operator, x.device.type, x.dtype)
        found = getattr(choose(x.device.type) if serves else reference, operator)
        _implementations[key] = found
    return found


def may_call_kernel(operator: str, *tensors: Tensor) -> bool:
    """Whether a kernel may be called directly on these tensors, which must be of one type."""
    dtype = tensors[0].dtype
    return (
        has_kernel(operator, tensors[0].device.type, dtype)
        and all(x.dtype == dtype and not observed(x) for x in tensors)
        and _knows_forward_mode
        and forward_ad._current_level < 0
    )


def _private(path: str) -> Any:
    """A private name of torch, or None where this version of torch does not have it."""
    found: Any = torch
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


# All private names of torch that slicegraph uses; it works without each of them.
PRIVATE_NAMES = (
    # Without one of the first three, every call goes through torch's dispatcher.
    "_C._get_tracing_state",  # whether a call is traced
    "_C._len_torch_dispatch_stack",  # whether a dispatch mode gets it
    "_C._functorch.peek_interpreter_stack",  # whether functorch transforms it
    "autograd.forward_ad._current_level",  # forward mode; else every call records a gradient
    "_C._autograd._top_saved_tensors_default_hooks",  # else `nn` has no such hooks to keep less
    # Checks values without waiting for a GPU or a graph break; else an unsorted batch is missed.
    "_assert_async",
    "_foreach_mul_",  # else gradients are scaled one by one
    "_foreach_copy_",  # else tensors are cast one by one
    "utils._pytree",  # named by torch.export; else a model is exported with plain tensors only
)
_tracing_state, _dispatch_modes, _functorch_level = map(_private, PRIVATE_NAMES[:3])
_knows_observers = None not in (_tracing_state, _dispatch_modes, _functorch_level)
_knows_forward_mode = _private(PRIVATE_NAMES[3]) is not None
_saving_hooks = _private(PRIVATE_NAMES[4])
assert_async, multiply_each, copy_each, pytree = map(_private, PRIVATE_NAMES[5:])
_is_compiling = torch.compiler.is_compiling


def observed(x: Tensor) -> bool:
    """Whether anything except autograd must see the operators that are called on `x`."""
    return (
        _is_compiling()
        or not _knows_observers
        or type(x) not in PLAIN
        or x.is_neg()
        or _tracing_state() is not None
        or _dispatch_modes() > 0
        or _functorch_level() is not None
    )


def may_hook_saved(x: Tensor) -> bool:
    """Whether hooks of ours may replace what autograd keeps: nothing else observes or has hooks."""
    return _saving_hooks is not None and not observed(x) and _saving_hooks(True) is None


def is_transformed() -> bool:
    """Whether `torch.func` or forward-mode differentiation sees the operators that are called.

    Neither can use our gradients, but both see through operators of torch.
    """
    if _is_compiling():
        return False
    if _functorch_level is not None and _functorch_level() is not None:
        return True
    return _knows_forward_mode and forward_ad._current_level >= 0


def _differentiated(x: Tensor) -> bool:
    # Forward mode that is not noticed: the Function, which has no jvp, raises.
    if not _knows_forward_mode or forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and x.requires_grad


class Operator:
    """An operator of torch's `slicegraph` namespace: one schema, one fake and one gradient.

    The first arguments, as many as `gradients`, are tensors that may have a gradient (the first) or
    None (the others). The `fake` returns empty tensors of the right shapes and types (default: one
    like the first argument).
    `smooth` is the operator in terms of those of torch, with all derivatives, for `torch.func`
    (default: the reference).
    `inlined` launches the Triton kernel by `torch.library.wrap_triton`, for compilers on CUDA,
    which then see the kernel instead of an operator.
    """

    def __init__(
        self,
        name: str,
        arguments: str,
        returns: str = "Tensor",
        fake: Callable[..., Any] = lambda x, *rest: x.new_empty(x.shape),
        *,
        gradients: int = 1,
        smooth: Callable[..., Any] | None = None,
        inlined: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.gradients = name, gradients
        self.smooth = smooth or getattr(reference, name)
        # The second operator is the first without its gradient, for calls from within it.
        for full_name in (name, f"{name}_kernel"):
            schema = f"{full_name}({arguments}) -> {returns}"
            _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
            for key in ("CPU", "CUDA"):
                _library.impl(full_name, self._run, key)
            torch.library.register_fake(f"slicegraph::{full_name}", fake, lib=_library)
        _library.impl(name, self._differentiate, "Autograd")
        self.op = getattr(torch.ops.slicegraph, name).default
        self.kernel = getattr(torch.ops.slicegraph, f"{name}_kernel").default
        self.inlined: Any = None
        triton_op = getattr(torch.library, "triton_op", None)  # from torch 2.6 on
        # Without Triton, torch would log that it finds no kernels in the operator.
        if inlined is not None and triton_op is not None and triton.INSTALLED:
            self.inlined = triton_op(f"slicegraph::{name}_triton", inlined, mutates_args=())

    def __call__(self, x: Tensor, *rest: Any) -> Any:
        if observed(x):
            return (self.smooth if is_transformed() else self.op)(x, *rest)
        if _knows_forward_mode and forward_ad._current_level >= 0:
            return self.smooth(x, *rest)
        if self._is_differentiated(x, rest):
            return self.apply(implementation(self.runs, x), x, *rest)
        return implementation(self.name, x)(x, *rest)

    def _is_differentiated(self, x: Tensor, rest: tuple[Any, ...]) -> bool:
        if _differentiated(x):
            return True
        others = rest[: self.gradients - 1] if self.gradients > 1 else ()
        return any(other is not None and _differentiated(other) for other in others)

    def _run(self, x: Tensor, *rest: Any) -> Any:
        return implementation(self.name, x)(plain(x), *map(plain, rest))

    def differentiate_with(self, gradient: Any, runs: str | None = None) -> Any:
        """Set the autograd function of a call; its forward pass is given an operator to run."""
        self.gradient, self.runs = gradient, runs or self.name
        self.apply = getattr(super(torch.autograd.Function, gradient), "apply", gradient.apply)
        return gradient

    def _differentiate(self, x: Tensor, *rest: Any) -> Any:
        if self._is_differentiated(x, rest):
            run = self.runner(x)
            if self.runs != self.name:
                run = getattr(torch.ops.slicegraph, f"{self.runs}_kernel").default
            return self.gradient.apply(run, x, *rest)
        return self.runner(x)(x, *rest)

    def runner(self, x: Tensor) -> Any:
        """The operator of torch that computes without a gradient."""
        inlined = self.inlined is not None and x.is_cuda and choose("cuda") is triton
        return self.inlined if inlined else self.kernel


def fused(operator: str, tensors: tuple[Tensor, ...], *options: Any) -> Tensor:
    """Run an operator by its kernel, or else step by step in torch, with all derivatives.

    The first two tensors are floating point and have gradients, which the kernel returns instead of
    the output if it is given `grad_out`.
    """
    seen_through = all(type(x) in PLAIN for x in tensors[2:])
    if not (seen_through and may_call_kernel(operator, *tensors[:2])):
        return getattr(reference, operator)(*tensors, *options)
    return _Fused.apply(operator, options, *tensors)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: str, options: tuple[Any, ...], *tensors: Tensor) -> Tensor:
        ctx.operator, ctx.options = operator, options
        ctx.save_for_backward(*tensors)
        return implementation(operator, tensors[0])(*tensors, *options)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[OptTensor, ...]:
        tensors = ctx.saved_tensors  # a recomputed layer may read them once
        inputs = (*tensors, *ctx.options)
        if torch.is_grad_enabled() or not may_call_kernel(ctx.operator, *tensors[:2]):
            plain = getattr(reference, ctx.operator)
            grads = differentiate(plain, inputs, ctx.needs_input_grad[2:4], grad_out)
        else:
            grads = implementation(ctx.operator, tensors[0])(*inputs, grad_out=grad_out)
        return (None, None, *grads, *(None,) * (len(tensors) - 2))


def differentiate(
    plain: Callable[..., Any], inputs: tuple[Any, ...], needed: tuple[bool, ...], *grads: Tensor
) -> list[OptTensor]:
    """The gradients of the first inputs of a function, which can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():  # views, so that a tensor in two places has a gradient at each
        own = [x.view_as(x) if need else x for x, need in zip(inputs, needed, strict=False)]
        outputs = plain(*own, *inputs[len(needed) :])
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    pairs = [pair for pair in zip(outputs, grads, strict=True) if pair[0].requires_grad]
    smooth, weights = zip(*pairs, strict=True)
    leaves = [x for x, need in zip(own, needed, strict=True) if need]
    found = torch.autograd.grad(smooth, leaves, weights, create_graph=again, materialize_grads=True)
    each = iter(found)
    return [next(each) if need else None for need in needed]

"""The laws of set layers as assertions, for the layers of slicegraph and for your own.

Every law is about a batch of sets and takes

- ``module``: a layer, a model or any function;
- ``sets``: the samples, usually tensors ``[n, C]`` of different lengths;
- ``layout``: how the module takes a batch. ``"dense"`` calls ``module(x, mask=mask)`` with ``x``
  ``[B, N, C]`` and ``mask`` ``[B, N]`` true at the real rows; ``"packed"`` calls
  ``module(x, batch=batch)`` with ``x`` ``[T, C]`` and a PyG ``batch`` vector. For anything else,
  such as graphs, give a function ``(module, sets) -> list of outputs, one per set``.

The output may have a row for each row of the input or be one vector per set. The module is left in
its mode: call ``module.eval()`` first if it has dropout. The tolerances are those of
:func:`torch.testing.assert_close`.
"""

from slicegraph.testing.backends import assert_backends_agree
from slicegraph.testing.padding import assert_padding_invariant
from slicegraph.testing.permutation import (
    assert_permutation_equivariant,
    assert_permutation_invariant,
)

__all__ = [
    "assert_backends_agree",
    "assert_padding_invariant",
    "assert_permutation_equivariant",
    "assert_permutation_invariant",
]

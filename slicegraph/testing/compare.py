"""How a broken law is reported: by torch, with the place and the size of the difference."""

from torch import Tensor
from torch.testing import assert_close


def compare(
    problem: str, actual: Tensor, expected: Tensor, rtol: float | None, atol: float | None
) -> None:
    """Raises an AssertionError that begins with `problem` unless the tensors are close."""
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{problem}: {m}"
    )

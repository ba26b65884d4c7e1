"""What `torch.load` raises for a file that is damaged, or that torch did not write."""

import struct
from pickle import UnpicklingError

DAMAGE = (
    UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    struct.error,
)
"""Found with thousands of changed and cut files; an error of the system or of memory is none."""

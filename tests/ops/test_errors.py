"""Wrong input names the value and says what would be right."""

import pytest
import torch

from slicegraph.ops import column_sort

X = torch.randn(4, 12, 3)
PACKED = torch.randn(7, 3)

CASES = {
    "lengths_beyond_rows": (
        ValueError,
        r"column_sort: lengths\[3\] = 17 exceeds the 12 rows of x",
        lambda: column_sort(X, lengths=torch.tensor([1, 2, 3, 17])),
    ),
    "lengths_negative": (
        ValueError,
        r"column_sort: lengths\[1\] = -2 is negative",
        lambda: column_sort(X, lengths=torch.tensor([1, -2, 3, 4], dtype=torch.int32)),
    ),
    "lengths_of_many_dimensions": (
        ValueError,
        r"lengths\[1, 0\] = 13 exceeds",
        lambda: column_sort(X.view(2, 2, 12, 3), lengths=torch.tensor([[1, 2], [13, 4]])),
    ),
    "lengths_of_wrong_shape": (
        ValueError,
        r"lengths has shape \[3\], expected \[4\]",
        lambda: column_sort(X, lengths=torch.tensor([1, 2, 3])),
    ),
    "lengths_of_wrong_type": (
        TypeError,
        "lengths is torch.float32, expected int32 or int64",
        lambda: column_sort(X, lengths=torch.ones(4)),
    ),
    "lengths_no_tensor": (
        TypeError,
        "lengths is list, expected a tensor",
        lambda: column_sort(X, lengths=[1, 2, 3, 4]),
    ),
    "ptr_descends": (
        ValueError,
        r"ptr must not descend, but ptr\[2\] = 3 follows ptr\[1\] = 5",
        lambda: column_sort(PACKED, ptr=torch.tensor([0, 5, 3, 7])),
    ),
    "ptr_ends_early": (
        ValueError,
        "ptr ends at 6, expected the 7 rows of x",
        lambda: column_sort(PACKED, ptr=torch.tensor([0, 3, 6])),
    ),
    "ptr_ends_late": (
        ValueError,
        "ptr ends at 9, expected the 7 rows of x",
        lambda: column_sort(PACKED, ptr=torch.tensor([0, 3, 9])),
    ),
    "ptr_starts_late": (
        ValueError,
        r"ptr\[0\] = 1, expected 0",
        lambda: column_sort(PACKED, ptr=torch.tensor([1, 7])),
    ),
    "ptr_of_wrong_shape": (
        ValueError,
        r"expected ptr \[B \+ 1\] and x \[T, C\]",
        lambda: column_sort(X, ptr=torch.tensor([0, 4])),
    ),
    "ptr_without_sets": (
        ValueError,
        "ptr ends at 0, expected the 70000 rows of x",
        lambda: column_sort(torch.randn(70_000, 2).half(), ptr=torch.tensor([0])),
    ),
    "ptr_empty": (
        ValueError,
        r"ptr of shape \[0\]",
        lambda: column_sort(PACKED, ptr=torch.tensor([], dtype=torch.int64)),
    ),
    "both": (
        ValueError,
        "lengths .* or ptr .*, not both",
        lambda: column_sort(PACKED, lengths=torch.tensor(7), ptr=torch.tensor([0, 7])),
    ),
    "integers": (
        TypeError,
        "x is torch.int64, expected float32, float64, bfloat16 or float16",
        lambda: column_sort(torch.ones(3, 4, dtype=torch.int64)),
    ),
    "one_dimension": (
        ValueError,
        r"x has shape \[5\], expected \[..., N, C\] or \[T, C\]",
        lambda: column_sort(torch.randn(5)),
    ),
    "mask_of_wrong_length": (
        ValueError,
        r"descending has shape \[2\], expected a bool or one per channel, \[3\]",
        lambda: column_sort(X, descending=[True, False]),
    ),
    "mask_of_wrong_type": (
        TypeError,
        "descending is torch.int64, expected bool",
        lambda: column_sort(X, descending=torch.tensor([0, 1, 0])),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_named(backend: str, case: str) -> None:
    error, message, call = CASES[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("case", ["lengths_beyond_rows", "ptr_descends", "ptr_ends_late"])
def test_wrong_sizes_are_named_when_gradients_are_needed(backend: str, case: str) -> None:
    x = (
        X.clone().requires_grad_()
        if case.startswith("lengths")
        else PACKED.clone().requires_grad_()
    )
    sizes = {
        "lengths_beyond_rows": {"lengths": torch.tensor([1, 2, 3, 17])},
        "ptr_descends": {"ptr": torch.tensor([0, 5, 3, 7])},
        "ptr_ends_late": {"ptr": torch.tensor([0, 3, 9])},
    }[case]
    with pytest.raises(ValueError, match=CASES[case][1]):
        column_sort(x, return_indices=False, **sizes)

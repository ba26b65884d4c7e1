"""Features packed into one integer and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

from slicegraph.data.molecule.feature_code import OGB_ATOM_CODE, OGB_BOND_CODE, FeatureCode


@st.composite
def vocabularies_and_features(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    vocabulary = draw(st.lists(st.integers(1, 300), min_size=1, max_size=7))
    row = st.tuples(*(st.integers(0, size - 1) for size in vocabulary)).map(list)
    return vocabulary, draw(st.lists(row, max_size=5))


@given(vocabularies_and_features())
def test_decoded_is_what_was_encoded(drawn: tuple[list[int], list[list[int]]]) -> None:
    vocabulary, rows = drawn
    code = FeatureCode(vocabulary)
    features = np.array(rows, dtype=np.int64).reshape(-1, len(vocabulary))
    codes = code.encode(features)
    assert codes.dtype == code.dtype
    assert codes.shape == (len(rows),)
    decoded = code.decode(codes)
    assert decoded.dtype == (np.uint8 if max(vocabulary) <= 256 else np.uint16)
    assert np.array_equal(decoded, features)


def test_first_feature_has_the_lowest_bits() -> None:
    codes = FeatureCode((5, 6, 2)).encode(np.array([[4, 0, 0], [0, 5, 0], [0, 0, 1]]))
    assert codes.tolist() == [4, 5 << 3, 1 << 6]


def test_vocabularies_are_those_of_ogb() -> None:
    assert list(OGB_ATOM_CODE.vocabulary) == get_atom_feature_dims()
    assert list(OGB_BOND_CODE.vocabulary) == get_bond_feature_dims()
    assert (OGB_ATOM_CODE.bits, OGB_ATOM_CODE.dtype) == (30, np.uint32)
    assert (OGB_BOND_CODE.bits, OGB_BOND_CODE.dtype) == (7, np.uint8)


@pytest.mark.parametrize("code", [OGB_ATOM_CODE, OGB_BOND_CODE])
def test_largest_values_survive(code: FeatureCode) -> None:
    largest = np.array([code.vocabulary]) - 1
    assert np.array_equal(code.decode(code.encode(largest)), largest)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [
        ((2,) * 8, np.uint8),
        ((2,) * 9, np.uint16),
        ((1 << 16, 2), np.uint32),
        ((1 << 32, 2), np.uint64),
        ((1 << 64,), np.uint64),
        ((1,), np.uint8),
    ],
)
def test_smallest_integer_that_fits_is_taken(vocabulary: tuple[int, ...], dtype: type) -> None:
    assert FeatureCode(vocabulary).dtype == dtype


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64])
def test_any_integer_type_is_encoded(dtype: type) -> None:
    features = np.array([[4, 5, 1]], dtype=dtype)
    assert OGB_BOND_CODE.encode(features).tolist() == [4 + (5 << 3) + (1 << 6)]


@pytest.mark.parametrize("value", [-1, 6, 255])
def test_value_outside_its_vocabulary_is_named(value: int) -> None:
    features = np.array([[0, 0, 0], [0, value, 0]])
    with pytest.raises(ValueError, match=rf"features\[1, 1\] = {value} is not in 0\.\.5"):
        OGB_BOND_CODE.encode(features)


@pytest.mark.parametrize(
    ("error", "message", "features"),
    [
        (ValueError, r"shape \[2, 2\], expected \[k, 3\]", np.zeros((2, 2), dtype=int)),
        (ValueError, r"shape \[3\], expected \[k, 3\]", np.zeros(3, dtype=int)),
        (TypeError, "features are float64, expected integers", np.zeros((2, 3))),
    ],
)
def test_wrong_features_are_named(error: type, message: str, features: np.ndarray) -> None:
    with pytest.raises(error, match=message):
        OGB_BOND_CODE.encode(features)


@pytest.mark.parametrize("vocabulary", [(), (3, 0), (1 << 32, 1 << 33)])
def test_impossible_vocabulary_is_refused(vocabulary: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="FeatureCode: "):
        FeatureCode(vocabulary)

"""Several small integers in one: the features of an atom in 30 bits, those of a bond in 7."""

from collections.abc import Sequence

import numpy as np


class FeatureCode:
    r"""Packs rows of categorical features into one unsigned integer each, and unpacks them.

    Feature ``f`` takes the values 0 to ``vocabulary[f] - 1`` and as many bits as the largest needs;
    the first feature has the lowest bits:

    .. math:: code = \sum_f value_f \cdot 2^{w_0 + \ldots + w_{f - 1}},
        \quad w_f = \max(1, \lceil \log_2 vocabulary_f \rceil)

    Args:
        vocabulary: how many values each feature takes, each at least 1; together at most 64 bits.

    Example:
        >>> code = FeatureCode((5, 6, 2))
        >>> code.encode(np.array([[4, 5, 1], [0, 1, 0]]))
        array([108,   8], dtype=uint8)
        >>> code.decode(np.array([108, 8], dtype=np.uint8))
        array([[4, 5, 1],
               [0, 1, 0]], dtype=uint8)
    """

    def __init__(self, vocabulary: Sequence[int]) -> None:
        self.vocabulary = tuple(int(size) for size in vocabulary)
        if not self.vocabulary or min(self.vocabulary) < 1:
            raise ValueError(f"FeatureCode: vocabulary = {self.vocabulary}, expected sizes above 0")
        widths = [max(1, (size - 1).bit_length()) for size in self.vocabulary]
        self.bits = sum(widths)
        if self.bits > 64:
            raise ValueError(f"FeatureCode: {self.vocabulary} needs {self.bits} bits, at most 64")
        self.dtype = np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= self.bits)}")
        self.value_dtype = np.min_scalar_type(max(self.vocabulary) - 1)
        starts = [sum(widths[:f]) for f in range(len(widths))]
        self._largest = np.array([size - 1 for size in self.vocabulary], dtype=np.uint64)
        self._shifts = np.array(starts, dtype=self.dtype)
        self._masks = np.array([(1 << width) - 1 for width in widths], dtype=self.dtype)

    def encode(self, features: np.ndarray) -> np.ndarray:
        """``[k, F]`` integers to ``[k]``; a value outside its vocabulary raises a `ValueError`."""
        if features.ndim != 2 or features.shape[1] != len(self.vocabulary):
            raise ValueError(
                f"FeatureCode: features have shape {list(features.shape)}, "
                f"expected [k, {len(self.vocabulary)}]"
            )
        if features.dtype.kind not in "iu":
            raise TypeError(f"FeatureCode: features are {features.dtype}, expected integers")
        self._check_values(features)
        parts = features.astype(self.dtype) << self._shifts
        return np.bitwise_or.reduce(parts, axis=1, dtype=self.dtype)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """``[k]`` of this code's dtype to ``[k, F]``: uint8, or wider if a vocabulary needs it."""
        parts = codes.astype(self.dtype, copy=False)[:, None] >> self._shifts
        parts &= self._masks
        return parts.astype(self.value_dtype)

    def _check_values(self, features: np.ndarray) -> None:
        outside = (features < 0) | (features > self._largest)
        if outside.any():
            row, column = np.unravel_index(outside.argmax(), outside.shape)
            raise ValueError(
                f"FeatureCode: features[{row}, {column}] = {features[row, column]} "
                f"is not in 0..{self.vocabulary[column] - 1}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureCode) and self.vocabulary == other.vocabulary

    def __hash__(self) -> int:
        return hash(self.vocabulary)

    def __repr__(self) -> str:
        return f"FeatureCode({self.vocabulary})"


OGB_ATOM_CODE = FeatureCode((119, 5, 12, 12, 10, 6, 6, 2, 2))
"""OGB's nine atom features: 30 bits, uint32."""

OGB_BOND_CODE = FeatureCode((5, 6, 2))
"""OGB's three bond features: 7 bits, uint8."""

"""Categorical features, each with a table of its own, as one vector."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slicegraph.ops import gather_sum


class FeatureTable(torch.nn.Module):
    r"""Embeds rows of categories, such as OGB's atoms and bonds.

    .. math:: y = \sum_f T_f[x_f]

    Args:
        vocabulary: how many categories each feature has.
        channels: the size of a vector.
        mean: whether to average over the features rather than to add them.
        padding_row: whether the table begins with a row that belongs to no category, as those of
            Graphormer v1 do; it starts as zeros.

    Shapes:
        - **features**: ``[T, F]``, integers; ``[T]`` if there is one feature.
        - **output**: ``[T, channels]``.

    Example:
        >>> FeatureTable([119, 5], channels=16)(torch.tensor([[6, 0], [8, 1]])).shape
        torch.Size([2, 16])
    """

    offsets: Tensor

    def __init__(
        self,
        vocabulary: Sequence[int],
        channels: int,
        mean: bool = False,
        padding_row: bool = False,
    ) -> None:
        super().__init__()
        if not vocabulary or min(vocabulary) < 1:
            raise ValueError(
                f"FeatureTable: vocabulary = {list(vocabulary)}, expected the number of categories "
                "of each feature, at least 1"
            )
        self.vocabulary, self.channels = tuple(vocabulary), channels
        self.mode = "mean" if mean else "sum"
        self.padding_row = padding_row
        self.weight = torch.nn.Parameter(torch.empty(sum(vocabulary) + padding_row, channels))
        self.register_buffer("offsets", self._offsets(), persistent=False)
        self.reset_parameters()

    def _offsets(self) -> Tensor:
        sizes = torch.tensor([int(self.padding_row), *self.vocabulary[:-1]])
        return sizes.cumsum(0)

    def reset_parameters(self) -> None:
        """Draws the table anew, with the deviation of Graphormer's."""
        torch.nn.init.normal_(self.weight, std=0.02)
        if self.padding_row:
            with torch.no_grad():
                self.weight[0] = 0
        if not self.offsets.is_meta:
            self.offsets.copy_(self._offsets())

    def places(self, features: Tensor) -> Tensor:
        """``[T, F]``, int64: the rows of the table that are added up."""
        if features.dim() == 1 and len(self.vocabulary) == 1:
            features = features.unsqueeze(-1)
        self._check(features)
        return features.long() + self.offsets

    def forward(self, features: Tensor) -> Tensor:
        total = gather_sum(self.weight, self.places(features))
        return total / len(self.vocabulary) if self.mode == "mean" else total

    def _check(self, features: Tensor) -> None:
        width = len(self.vocabulary)
        if features.dim() != 2 or features.shape[1] != width or features.is_floating_point():
            raise ValueError(
                f"FeatureTable: features of shape {list(features.shape)} and type "
                f"{features.dtype}, expected integers of shape [T, {width}]"
            )
        if features.is_cpu and not torch.compiler.is_compiling():
            sizes = torch.tensor(self.vocabulary)  # which a byte need not hold
            wrong = (features < 0) | (features >= sizes)
            if bool(wrong.any()):
                row, column = wrong.nonzero()[0].tolist()
                value, last = int(features[row, column]), self.vocabulary[column] - 1
                raise ValueError(
                    f"FeatureTable: features[{row}, {column}] = {value} is not in 0..{last}"
                )

    def extra_repr(self) -> str:
        return f"{list(self.vocabulary)}, {self.channels}, {self.mode}"

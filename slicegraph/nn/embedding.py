"""The input of an encoder: one vector for every node of a graph or element of a sequence."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.packed import prepend_tokens, token_ptr
from slicegraph.nn.slice_sort import BatchNorm, Layer
from slicegraph.ops.layout import can_read, set_of_row
from slicegraph.ops.operator import is_transformed


class FeatureTable(Layer):
    r"""Embeds rows of categories, such as OGB's atoms and bonds.

    .. math:: y = \sum_f T_f[x_f]

    Args:
        vocabulary: how many categories each feature has.
        channels: the size of a vector.
        mean: whether to average over the features instead of adding them.
        padding_row: whether the table begins with a row without a category, as those of Graphormer
            v1 do; it is initialised to zeros.

    Shapes:
        - **features**: ``[T, F]``, integers; ``[T]`` if there is one feature; or floats
          ``[T, sum(vocabulary)]``, a weight for each category, see :meth:`one_hot`.
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
                f"FeatureTable: vocabulary = {list(vocabulary)}, expected at least 1 per feature"
            )
        self.vocabulary, self.channels = tuple(vocabulary), channels
        self.mode, self.padding_row = "mean" if mean else "sum", padding_row
        # Whether a row of several features has a number of its own that fits in 64 bits.
        self.is_countable = len(vocabulary) > 1 and math.prod(vocabulary) < 2**62 // sum(vocabulary)
        self.weight = torch.nn.Parameter(torch.empty(sum(vocabulary) + padding_row, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets the table, with the standard deviation of Graphormer's."""
        torch.nn.init.normal_(self.weight, std=0.02)
        torch.nn.init.zeros_(self.weight[: int(self.padding_row)])
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Computes the first row of each feature."""
        offsets = torch.tensor([int(self.padding_row), *self.vocabulary[:-1]]).cumsum(0)
        self.register_buffer("offsets", offsets.to(self.weight.device), persistent=False)

    def places(self, features: Tensor) -> Tensor:
        """Returns the rows of the table to add up, ``[T, F]`` int64."""
        width = len(self.vocabulary)
        if features.dim() == 1 and width == 1:
            features = features.unsqueeze(-1)
        if features.dim() != 2 or features.shape[1] != width or features.is_floating_point():
            raise ValueError(
                f"FeatureTable: features of shape {list(features.shape)} and type "
                f"{features.dtype}, expected integers of shape [T, {width}]"
            )
        if can_read(features):
            wrong = (features < 0) | (features >= torch.tensor(self.vocabulary))
            if bool(wrong.any()):
                row, column = wrong.nonzero()[0].tolist()
                value, last = int(features[row, column]), self.vocabulary[column] - 1
                raise ValueError(
                    f"FeatureTable: features[{row}, {column}] = {value} is not in 0..{last}"
                )
        return features.long() + self.offsets

    def one_hot(self, features: Tensor) -> Tensor:
        """Converts categories ``[T, F]`` to floats ``[T, sum(vocabulary)]`` of the same meaning."""
        rows = self.places(features) - int(self.padding_row)
        return self.weight.new_zeros(len(rows), sum(self.vocabulary)).scatter_(1, rows, 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Embeds each row.

        Args:
            features: ``[T, F]`` integers, or floats ``[T, sum(vocabulary)]``.
        """
        if features.is_floating_point() and features.shape[1:] == (sum(self.vocabulary),):
            out = features.to(self.weight.dtype) @ self.weight[int(self.padding_row) :]
            return out / len(self.vocabulary) if self.mode == "mean" else out
        places = self.places(features)
        if len(self.vocabulary) == 1 and not can_read(places):
            return functional.embedding(places.squeeze(1), self.weight)
        if is_transformed():  # torch.func cannot differentiate past a bag
            rows = functional.embedding(places, self.weight)
            return rows.mean(1) if self.mode == "mean" else rows.sum(1)
        if not (self.is_countable and can_read(places)):
            return functional.embedding_bag(places, self.weight, mode=self.mode)
        # The gradient of a bag takes long, and few atoms of a batch differ: one bag for each.
        radix = torch.tensor([1, *self.vocabulary[:-1]]).cumprod(0)
        codes, index = torch.unique((places * radix).sum(1), return_inverse=True)
        one_each = torch.empty_like(codes).scatter_(0, index, torch.arange(len(index)))
        bags = functional.embedding_bag(places[one_each], self.weight, mode=self.mode)
        return bags.index_select(0, index)

    def extra_repr(self) -> str:
        return f"{list(self.vocabulary)}, {self.channels}, {self.mode}"


def feature_encoder(
    channels: int, vocabulary: Sequence[int] | None, dim: int | None, padding_row: bool = False
) -> FeatureTable | torch.nn.Linear:
    """Makes a table for categorical features, or a projection of ``dim`` floating-point ones."""
    if bool(vocabulary) == bool(dim):
        raise ValueError(f"{vocabulary} categories and {dim} float features, expected one of them")
    if vocabulary:
        return FeatureTable(vocabulary, channels, padding_row=padding_row)
    return torch.nn.Linear(dim or 0, channels)


class WalkEncoder(Layer):
    r"""Projects random-walk probabilities, such as those from a node back to itself (RWSE).

    .. math:: y = W \hat{p} + b

    where :math:`\hat{p}` are the probabilities, each standardised by the mean and deviation of the
    training batches.

    Shapes:
        - **walks**: ``[T, length]`` or more columns; **output**: ``[T, channels]``.
    """

    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.norm = BatchNorm(length, affine=False)
        self.linear = torch.nn.Linear(length, channels)

    def forward(self, walks: Tensor) -> Tensor:
        """Projects the probabilities.

        Args:
            walks: ``[T, length]``; further columns are not read.
        """
        length = self.linear.in_features
        if walks.dim() != 2 or walks.shape[1] < length:
            shape = list(walks.shape)
            raise ValueError(f"WalkEncoder: walks have shape {shape}, expected [T, {length}]")
        return self.linear(self.norm(walks[:, :length].to(self.linear.weight.dtype)))


class GraphEmbedding(Layer):
    r"""The input of Graphormer: node features and the centrality encoding of `"Do Transformers
    Really Perform Bad for Graph Representation?" <https://arxiv.org/abs/2106.05234>`_.

    .. math:: x_i = \sum_f T_f[z_{if}] + T_{in}[\deg^-_i] + T_{out}[\deg^+_i]

    Args:
        channels: the size of a vector.
        node_vocabulary: the number of categories of each node feature, for categorical ones.
        node_dim: the number of node features, for floating-point ones, which are projected.
        max_degree: larger degrees count as this one.
        token: whether every graph gets a learned row in front of its nodes.
        padding_row: whether the tables begin with a row for padding, as those of Graphormer v1 do.
        in_degree_twice: whether both degree tables are read at the in-degree, as in Graphormer v1.
        walk_length: how many random-walk probabilities of a node to add, by a
            :class:`WalkEncoder`; 0 for none.

    Shapes:
        - **features** ``[T, F]``, **in_degree** and **out_degree** ``[T]``, **ptr** ``[B + 1]``,
          **walks** ``[T, walk_length]`` or more columns.
        - **output**: ``[T, channels]``, or ``[T + B, channels]`` with a token: graph ``b`` is the
          rows ``ptr[b] + b`` to ``ptr[b + 1] + b + 1``.

    Example:
        >>> embedding = GraphEmbedding(16, node_vocabulary=[119, 5], token=True)
        >>> features, degree = torch.tensor([[6, 0], [8, 1]]), torch.tensor([1, 1])
        >>> embedding(features, degree, degree, ptr=torch.tensor([0, 2])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        node_vocabulary: Sequence[int] | None = None,
        node_dim: int | None = None,
        max_degree: int = 63,
        *,
        token: bool = False,
        padding_row: bool = False,
        in_degree_twice: bool = False,
        walk_length: int = 0,
    ) -> None:
        super().__init__()
        self.max_degree, self.in_degree_twice = max_degree, in_degree_twice
        self.nodes = feature_encoder(channels, node_vocabulary, node_dim, padding_row)
        self.in_degree = FeatureTable([max_degree + 1], channels, padding_row=padding_row)
        self.out_degree = FeatureTable([max_degree + 1], channels, padding_row=padding_row)
        self.walks = WalkEncoder(walk_length, channels) if walk_length else None
        self.token = torch.nn.Parameter(torch.empty(1, channels)) if token else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        super().reset_parameters()
        if self.token is not None:
            torch.nn.init.normal_(self.token, std=0.02)

    def forward(
        self,
        features: Tensor,
        in_degree: Tensor,
        out_degree: Tensor,
        ptr: Tensor,
        added: Tensor | None = None,
        walks: Tensor | None = None,
    ) -> Tensor:
        """Embeds each node, and puts a token in front of every graph if there is one.

        Args:
            features: ``[T, F]``, the node features.
            in_degree, out_degree: ``[T]``.
            ptr: ``[B + 1]``, the nodes of each graph.
            added: ``[T, channels]``, added to the nodes.
            walks: ``[T, walk_length]`` or more columns, if they are read.
        """
        out_degree = in_degree if self.in_degree_twice else out_degree
        if isinstance(self.nodes, torch.nn.Linear):
            size = self.nodes.in_features
            if features.shape[1:] != (size,) or not features.is_floating_point():
                raise ValueError(
                    f"GraphEmbedding: features of shape {list(features.shape)} and type "
                    f"{features.dtype}, expected floats of shape [T, {size}], as node_dim = {size}"
                )
        x = self.nodes(features) + self.in_degree(in_degree.clamp(max=self.max_degree))
        x = x + self.out_degree(out_degree.clamp(max=self.max_degree))
        x = x if added is None else x + added
        if self.walks is not None:
            if walks is None:
                raise ValueError("GraphEmbedding: walks are missing, expected those of each node")
            x = x + self.walks(walks)
        return x if self.token is None else prepend_tokens(x, self.token, ptr.long())


class Waves(Layer):
    """Sines in the even channels and cosines in the odd ones: the fixed positions of `"Attention Is
    All You Need" <https://arxiv.org/abs/1706.03762>`_.

    Example:
        >>> Waves(length=4, channels=16)(torch.tensor([0, 3])).shape
        torch.Size([2, 16])
    """

    rows: Tensor

    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.empty(length, channels), persistent=False)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Computes the waves."""
        length, channels = self.rows.shape
        with torch.device("cpu"):
            rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(10000.0) / channels))
            angles = torch.arange(length).unsqueeze(1) * rates
            rows = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :channels]
        self.rows = rows.to("cpu" if self.rows.is_meta else self.rows.device, self.rows.dtype)

    def forward(self, places: Tensor) -> Tensor:
        """Reads the rows of positions.

        Args:
            places: integers of any shape.
        """
        return self.rows[places]


POSITIONS: dict[str, Callable[[int, int], FeatureTable | Waves | None]] = {
    "learned": lambda length, channels: FeatureTable([length], channels),
    "sinusoidal": Waves,
    "none": lambda length, channels: None,
}


class SequenceEmbedding(Layer):
    r"""Embeds tokens or vectors, and adds a position encoding.

    .. math:: x_i = T[z_i] + P_i \quad \text{or} \quad x_i = z_i W + b + P_i

    Args:
        channels: the size of a vector.
        vocabulary: the number of tokens, for sequences of tokens.
        in_channels: the size of an element, for sequences of vectors.
        max_length: the length of the longest sequence.
        positions: ``"learned"``, a table; ``"sinusoidal"``, the fixed waves of `"Attention Is All
            You Need" <https://arxiv.org/abs/1706.03762>`_; or ``"none"``.
        token: whether every sequence gets a learned row (CLS) in front, which has a position too.

    Shapes:
        - **elements**: ``[T]`` integers or ``[T, in_channels]``, packed with **ptr** ``[B + 1]``;
          or dense without, ``[B, N]`` or ``[B, N, in_channels]``.
        - **output**: ``[T, channels]``, or ``[T + B, channels]`` with a token; dense,
          ``[B, N, channels]`` or ``[B, N + 1, channels]``.

    Example:
        >>> embedding = SequenceEmbedding(16, vocabulary=256, max_length=4, token=True)
        >>> embedding(torch.tensor([72, 105, 33]), ptr=torch.tensor([0, 2, 3])).shape
        torch.Size([5, 16])
    """

    def __init__(
        self,
        channels: int,
        vocabulary: int | None = None,
        in_channels: int | None = None,
        max_length: int = 512,
        *,
        positions: str = "learned",
        token: bool = False,
    ) -> None:
        super().__init__()
        self._check_choice("positions", positions, POSITIONS)
        self.channels, self.max_length = channels, max_length
        self.elements = feature_encoder(channels, [vocabulary] if vocabulary else None, in_channels)
        self.num_places = max_length + token
        self.places = POSITIONS[positions](self.num_places, channels)
        self.token = torch.nn.Parameter(torch.empty(1, channels)) if token else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters; tokens are as large as the waves if there are any."""
        super().reset_parameters()
        if isinstance(self.places, Waves) and isinstance(self.elements, FeatureTable):
            torch.nn.init.normal_(self.elements.weight)
        if self.token is not None:
            torch.nn.init.normal_(self.token, std=0.02)

    def forward(self, elements: Tensor, ptr: Tensor | None = None) -> Tensor:
        """Embeds each element, and puts a token in front of every sequence if there is one.

        Args:
            elements: ``[T]`` integers or ``[T, in_channels]``, packed sequences; dense ones have a
                dimension more.
            ptr: ``[B + 1]``, the elements of each packed sequence; None for dense ones.
        """
        if ptr is None:
            return self._of_dense(elements)
        if self.places is not None and can_read(ptr):
            lengths = ptr.diff()
            if lengths.numel() and int(longest := lengths.max()) > self.max_length:
                raise ValueError(
                    f"SequenceEmbedding: sequence {int(lengths.argmax())} has {int(longest)} "
                    f"elements, max_length is {self.max_length}; cut it, or make a longer model"
                )
        x, ptr = self.elements(elements), ptr.long()
        if self.token is not None:
            x, ptr = prepend_tokens(x, self.token, ptr), token_ptr(ptr)
        if self.places is None:
            return x
        places = torch.arange(x.shape[0], device=x.device) - ptr[set_of_row(ptr, x.shape[0])]
        return x + self.places(places)

    def _of_dense(self, elements: Tensor) -> Tensor:
        x = self.elements(elements.flatten(0, 1)).unflatten(0, elements.shape[:2])
        if self.token is not None:
            x = torch.cat([self.token.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)
        if self.places is None:
            return x
        # Padding may make a batch longer than the longest sequence.
        places = torch.arange(x.shape[1], device=x.device).clamp(max=self.num_places - 1)
        return x + self.places(places)

"""The Sliceformer on graphs, and Graphormer: configuration, input and model."""

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn.inits import reset
from torch_geometric.utils import degree, is_sparse

from slicegraph.models.base import Config, Model
from slicegraph.models.graphormer import Weights, read_graphormer_v1, read_huggingface
from slicegraph.models.presets import PRESETS, VOCABULARIES, find_preset
from slicegraph.nn.bias import PAIR_WEIGHTS, PairBias, StructuralBias
from slicegraph.nn.block import LOCALS, Edges, EncoderBlock, encode, real_rows
from slicegraph.nn.embedding import FeatureTable, GraphEmbedding, WalkEncoder, feature_encoder
from slicegraph.nn.mixer import ENCODER_MIXERS, MIXERS, Mixer, NoMixer
from slicegraph.nn.packed import PaddedSets, batch_to_ptr, check_batch, gather_rows, token_ptr
from slicegraph.nn.readout import READOUTS, GraphReadout, KernelHead
from slicegraph.nn.slice_sort import NORMS
from slicegraph.ops.layout import can_read, set_of_row
from slicegraph.ops.operator import pytree
from slicegraph.ops.pairs import dropout
from slicegraph.ops.paths import ShortestPaths, random_walks
from slicegraph.transforms import STRUCTURE, RingNodes
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

TASKS = ("regression", "binary", "multiclass")
LEVELS = ("graph", "node")
INITS = ("graphormer", "torch")
MOST_DEVIATIONS = 10.0  # of a feature from its mean; values beyond count as that
WALK_TERMS = ("node", "edge", "pair")
ENCODINGS = {  # the attribute of a graph, which is also a field, and PyG's transform that writes it
    "laplacian_eigenvector_pe": "AddLaplacianEigenvectorPE(k={})",
    "random_walk_pe": "AddRandomWalkPE(walk_length={})",
}
_WITHOUT_RINGS = ("node_dim", "edge_dim", *ENCODINGS)  # which rings do not have
_OGB: Any = "ogb"  # OGB's categories, unless there are float features


@dataclass(frozen=True)
class GraphSliceformerConfig(Config):
    """The configuration of :class:`~slicegraph.models.GraphSliceformer`.

    Args:
        num_layers, channels, ffn_channels, heads: the size of the encoder.
        mixer, order, align: attention or its replacement, see :class:`~slicegraph.nn.Mixer`;
            ``"none"`` leaves it out, and nodes exchange information along edges alone.
        local: ``"gine"`` adds messages along the edges to every mixer, see
            :class:`~slicegraph.nn.LocalBranch`; ``"gated"`` does so with a state for every edge,
            see :class:`~slicegraph.nn.GatedBranch`; ``"none"`` does not.
        rings: rings of up to this many atoms are added as nodes, see
            :class:`~slicegraph.transforms.RingNodes`; 0 adds none.
        norm: ``"layer"`` or ``"batch"``, see :class:`~slicegraph.nn.EncoderBlock`.
        walk_length: how many random-walk probabilities (0, 1, ... steps) are read; 0 for none.
        walk_terms: where they are read: ``"node"``, from a node back to itself, added to its
            embedding (RWSE); ``"edge"``, along an edge, added to the edges of ``local``;
            ``"pair"``, between any two nodes, as a third term of S + E (RRWP).
        walk_layers: whether each layer has its own third term, or all share one.
        pair_weights: ``"softmax"`` of the terms, or ``"kernel"``, the terms themselves, see
            :class:`~slicegraph.nn.StructuralBias`; ``"qkv"`` always has a softmax.
        node_vocabulary: the number of categories of each node feature, ``"ogb"`` for OGB's; none
            for float features.
        node_dim: the number of float node features. Then ``"ogb"`` means none, for edges too.
        edge_vocabulary, edge_dim: the same for edges; with neither, edge features are not read.
        laplacian_eigenvector_pe, random_walk_pe: how many numbers per node the attribute of this
            name has, which PyG's transforms ``AddLaplacianEigenvectorPE`` and ``AddRandomWalkPE``
            write; projected and added to the nodes. 0 does not read it.
        max_distance, max_hops, max_degree: longer distances, later edges of a path and larger
            degrees are not distinguished.
        readout: ``"token"`` gives every graph a token and reads it; the others, see
            :class:`~slicegraph.nn.GraphReadout`, read the nodes, and there is no token.
        quantiles: how many quantiles of each channel are read, by this readout and by the mixer
            ``"quantile_attn"``.
        task_level: ``"graph"`` predicts for each graph; ``"node"`` for each node, without a
            readout (``readout="token"`` still gives every graph a token).
        head_layers: the number of linear layers after the readout; each but the last has GELU and
            half the size of the one before.
        init: how linear layers begin: ``"graphormer"``, normal with a deviation of
            ``0.02 / sqrt(num_layers)``, or ``"torch"``, uniform by the size of their input, which
            suits narrow models with a batch norm.
        num_targets: how many numbers are predicted for a graph, or a node.
        task: ``"regression"``; ``"binary"``, a logit for each target; ``"multiclass"``,
            ``num_classes`` logits for each target.
        num_classes: the number of classes of a ``"multiclass"`` target.
        dropout, attention_dropout, input_dropout: the dropout probabilities of the branches of a
            block, of the weights of a softmax, and of the embedding.
        recompute: what the backward pass recomputes to save memory, see
            :class:`~slicegraph.nn.EncoderBlock`.
        target_names, unit: the names and the unit of the targets; for display only.
        class_names: the names of the classes of a ``"binary"`` or ``"multiclass"`` target; for
            display only.
        standardize: the steps by which molecules were standardised before training, see
            ``slicegraph.data.molecules``; a predictor takes them too.
        target_mean, target_std: mean and standard deviation of each target of a regression. The
            head predicts standardised targets; the model returns them in their unit.
        log_target: whether a regression predicts the decimal logarithm of its targets, of which
            ``target_mean`` and ``target_std`` are then; the model returns the targets.
        feature_columns, descriptors, fingerprint: the numbers that are joined to the vector of each
            graph in front of the head, ``batch.features [B, F]``: columns of a table, descriptors
            of RDKit by name, and so many counts of Morgan neighbourhoods. With any of them use
            ``head_layers`` of at least 2, or the head is linear in them.
        molecule_columns: the columns of the molecules, if a row has several: the batch has them one
            after the other, and their vectors are joined in front of the head, in this order.
        feature_mean, feature_std: of the columns and the descriptors; 0 for a deviation leaves that
            number out. A column is standardised; of a standardised descriptor, and of a count, the
            model reads :math:`\\operatorname{asinh}`. A gap (NaN) is 0 then.
        kernel_rows: how many training molecules the head stores, see
            :class:`~slicegraph.nn.readout.KernelHead`; 0 for a linear head.
        label_means: the mean of each target (or of its logarithm) in the training; of classes the
            share of class 1, or of every class of each target. The baseline of explanations.
        padding_row, hop_blocks: the tables of Graphormer v1 begin with a row for padding and have
            room for 128 hops; neither is used by a model trained here.
        empty_hops, in_degree_twice: quirks of Graphormer v1, which its weights need: the slots
            after a path's last edge add the edge table's padding row, and both degree tables are
            read at the in-degree.
        post_norm, embedding_norm, final_transform: parts of the Graphormer of the transformers
            library: norms after the sums of a block, a norm after the embedding, and a linear layer
            with GELU before the final norm.
    """

    num_layers: int = 12
    channels: int = 768
    ffn_channels: int = 768
    heads: int = 32
    mixer: str = "sort_attn"
    order: str = "ascending"
    align: str = "rows"
    local: str = "none"
    node_vocabulary: tuple[int, ...] | None = _OGB
    node_dim: int | None = None
    edge_vocabulary: tuple[int, ...] | None = _OGB
    edge_dim: int | None = None
    laplacian_eigenvector_pe: int = 0
    random_walk_pe: int = 0
    max_distance: int = 254
    max_hops: int = 5
    max_degree: int = 63
    readout: str = "token"
    quantiles: int = 5
    task_level: str = "graph"
    num_targets: int = 1
    task: str = "regression"
    num_classes: int = 2
    dropout: float = 0.0
    attention_dropout: float = 0.0
    input_dropout: float = 0.0
    recompute: str = "none"
    target_names: tuple[str, ...] = ()
    unit: str = ""
    class_names: tuple[str, ...] = ()
    standardize: tuple[str, ...] = ()
    target_mean: tuple[float, ...] | None = None
    target_std: tuple[float, ...] | None = None
    label_means: tuple[float, ...] | None = None
    padding_row: bool = False
    hop_blocks: int | None = None
    empty_hops: bool = False
    in_degree_twice: bool = False
    post_norm: bool = False
    embedding_norm: bool = False
    final_transform: bool = False
    norm: str = "layer"
    walk_length: int = 0
    walk_terms: tuple[str, ...] = WALK_TERMS
    walk_layers: bool = False
    pair_weights: str = "softmax"
    head_layers: int = 1
    init: str = "graphormer"
    log_target: bool = False
    rings: int = 0
    feature_columns: tuple[str, ...] = ()
    descriptors: tuple[str, ...] = ()
    fingerprint: int = 0
    feature_mean: tuple[float, ...] = ()
    feature_std: tuple[float, ...] = ()
    molecule_columns: tuple[str, ...] = ()
    kernel_rows: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        floats = self.node_dim is not None
        for name, sizes, others in (
            ("node_vocabulary", OGB_ATOMS, floats),
            ("edge_vocabulary", OGB_BONDS, floats or self.edge_dim is not None),
        ):
            if isinstance(value := getattr(self, name), str):
                if value != _OGB:
                    raise self._error(name, f", expected {_OGB!r} or numbers of categories")
                object.__setattr__(self, name, None if others else sizes)
        for name in ENCODINGS:
            if getattr(self, name) < 0:
                raise self._error(name, " is negative")
        self._check_at_least_one(
            *("num_layers", "channels", "ffn_channels", "heads", "num_targets", "quantiles"),
            "head_layers",
        )
        self._check_one_of(
            task=TASKS, task_level=LEVELS, local=LOCALS, mixer=ENCODER_MIXERS, readout=READOUTS
        )
        self._check_one_of(norm=NORMS, pair_weights=PAIR_WEIGHTS, init=INITS)
        if not set(self.walk_terms) <= set(WALK_TERMS):
            raise self._error("walk_terms", f", expected some of {', '.join(WALK_TERMS)}")
        if self.walk_length < 0:
            raise self._error("walk_length", " is negative")
        if self.mixer not in MIXERS and LOCALS[self.local] is None:
            raise self._error("mixer", " needs a local branch, such as local = 'gine'")
        self._check_rings()
        if self.task == "multiclass" and self.num_classes < 2:
            raise self._error("num_classes", " must be at least 2")
        shares = self.num_targets * (self.num_classes if self.task == "multiclass" else 1)
        names = ("target_names", "target_mean", "target_std", "label_means")
        for name, values in self.pick(*names).items():
            expected = shares if name == "label_means" else self.num_targets
            if values and len(values) != expected:
                counts = f"{len(values)} values for {self.num_targets} targets"
                raise ValueError(f"GraphSliceformerConfig: {name} has {counts}")
        classes = self.num_classes if self.task == "multiclass" else 2
        if self.class_names and len(self.class_names) != classes:
            counts = f"{len(self.class_names)} class_names for {classes} classes"
            raise ValueError(f"GraphSliceformerConfig: {counts}")
        if (self.target_mean is None) != (self.target_std is None):
            raise self._error("target_std", ", expected together with target_mean")
        if self.target_std is not None and self.task != "regression":
            raise self._error("task", ", expected 'regression', which target_std is for")
        if self.target_std is not None and not min(self.target_std) > 0:
            raise self._error("target_std", " must be above 0")
        if self.log_target and self.task != "regression":
            raise self._error("task", ", expected 'regression', which log_target is for")

        if self.fingerprint < 0:
            raise self._error("fingerprint", " is negative")
        named = len(self.feature_columns) + len(self.descriptors)
        for name, values in self.pick("feature_mean", "feature_std").items():
            if len(values) != named:
                counts = f"{len(values)} values for {named} columns and descriptors"
                raise ValueError(f"GraphSliceformerConfig: {name} has {counts}")
        if self.num_features and self.task_level == "node":
            raise self._error("task_level", ", expected 'graph', which the features are for")
        if self.molecules > 1 and self.task_level == "node":
            raise self._error("task_level", ", expected 'graph', which molecule_columns are for")
        if self.kernel_rows < 0:
            raise self._error("kernel_rows", " is negative")
        if self.kernel_rows and (self.task_level == "node" or self.head_layers > 1):
            raise self._error("kernel_rows", ", expected 0 for nodes and for head_layers above 1")

    def _check_rings(self) -> None:
        if not self.rings:
            return
        if self.rings < 3:
            raise self._error("rings", ", expected 0, or at least 3")
        if self.node_vocabulary is None or self.edge_dim is not None:
            raise self._error("rings", " needs categories as features of nodes and edges")
        if self.task_level != "graph":
            raise self._error("rings", ", expected 0 with task_level = 'node'")
        if name := next(filter(partial(getattr, self), ENCODINGS), None):
            raise self._error("rings", f", expected 0 with {name}, which rings do not have")

    @property
    def ring_nodes(self) -> RingNodes | None:
        """What adds the rings to a batch."""
        nodes, edges = self.node_vocabulary, self.edge_vocabulary
        if not self.rings or nodes is None:
            return None
        return RingNodes(self.rings, nodes[0], edges[0] if edges else 0)

    @property
    def node_tables(self) -> tuple[int, ...] | None:
        """The number of categories of each node feature, with those of rings."""
        sizes, more = self.node_vocabulary, max(0, self.rings - 2)
        return (sizes[0] + more, *sizes[1:]) if sizes else sizes

    @property
    def edge_tables(self) -> tuple[int, ...] | None:
        """The number of categories of each edge feature, with that of the edges of rings."""
        sizes, more = self.edge_vocabulary, int(self.rings > 0)
        return (sizes[0] + more, *sizes[1:]) if sizes else sizes

    @property
    def has_deviation(self) -> bool:
        """Whether a prediction has a standard deviation of its own, as that of a kernel head."""
        return bool(self.kernel_rows) and self.task == "regression"

    @property
    def num_features(self) -> int:
        """How many numbers are joined to the vector of each graph."""
        return len(self.feature_columns) + len(self.descriptors) + self.fingerprint

    @property
    def molecules(self) -> int:
        """How many graphs the head reads at a time."""
        return len(self.molecule_columns) or 1

    @property
    def token(self) -> bool:
        """Whether every graph has a token."""
        return READOUTS[self.readout].token

    def walks_of(self, term: str) -> int:
        """How many random-walk probabilities are read at one of the terms."""
        return self.walk_length if term in self.walk_terms else 0


def preset(name: str, vocabulary: str = "ogb", **overrides: Any) -> GraphSliceformerConfig:
    """Returns the configuration of a preset.

    Graphs that rings cannot be added to, such as those with float features, get none.

    Args:
        name: a name from :obj:`PRESETS`.
        vocabulary: ``"ogb"``, or ``"graphormer"`` for tables of 512 entries per feature.
        **overrides: fields of the configuration to change.

    Example:
        >>> preset("sliceformer-slim", num_targets=3).channels
        80
    """
    fields = find_preset(name, PRESETS) | find_preset(vocabulary, VOCABULARIES, "vocabulary")
    fields |= overrides
    without = fields.get("task_level") == "node" or any(map(fields.get, _WITHOUT_RINGS))
    if without and "rings" not in overrides:
        fields["rings"] = 0
    return GraphSliceformerConfig.from_dict(fields)


class GraphBatch(NamedTuple):
    """The tensors of a batch: ``features [T, F]``, ``ptr [B + 1]``, edges, degrees ``[T]``; and the
    nodes of the largest graph if they are known without reading ``ptr``."""

    features: Tensor
    ptr: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    in_degree: Tensor
    out_degree: Tensor
    max_nodes: int | None = None

    @property
    def num_pairs(self) -> int | None:
        """The pairs of nodes, of a single graph; None for a batch."""
        return None if self.ptr.numel() != 2 else self.features.shape[0] ** 2

    def sets(self, token: bool) -> PaddedSets:
        """Returns the padded layout of the rows of the graphs, with or without a token each."""
        rows, graphs, length = self.features.shape[0], self.ptr.numel() - 1, self.max_nodes
        if not token:
            return PaddedSets(self.ptr, length, rows)
        length = None if length is None else length + 1
        return PaddedSets(token_ptr(self.ptr), length, rows + graphs)


def make_batch(
    x: Tensor,
    edge_index: Tensor | None = None,
    edge_attr: Tensor | None = None,
    batch: Tensor | None = None,
    **attributes: Any,
) -> Data:
    """Makes a graph, or a batch of graphs, of plain tensors; edges are grouped by graph."""
    data = Data()
    attributes |= {"x": x, "edge_index": edge_index, "edge_attr": edge_attr}
    if batch is None:
        return _filled(data, attributes)
    check_batch("GraphSliceformer", batch, x)
    attributes["batch"] = batch
    if "ptr" in attributes:  # then the edges are grouped by graph already
        return _filled(data, attributes)
    if batch.numel():
        batch_to_ptr(batch)  # raises if it is not sorted
    if edge_index is not None:
        order = torch.argsort(batch[edge_index[0]], stable=True)
        edge_index = edge_index[:, order]
        edge_attr = None if edge_attr is None else edge_attr[order]
    graphs = int(batch[-1]) + 1 if batch.numel() else 0
    ptr = torch.searchsorted(batch, torch.arange(graphs + 1, device=x.device, dtype=batch.dtype))
    attributes |= {"edge_index": edge_index, "edge_attr": edge_attr, "ptr": ptr}
    return _filled(data, attributes)


def _filled(data: Data, attributes: dict[str, Any]) -> Data:
    for name, value in attributes.items():
        if value is not None:
            data[name] = value  # a compiled graph cannot give them to the constructor
    return data


def read_batch(data: Data) -> GraphBatch:
    """Reads the tensors of a ``Batch``, or of a single graph; raises if it is empty."""
    if not isinstance(data, Data):
        kind = f"the batch is a {type(data).__name__}, expected a Data or Batch, or plain tensors"
        raise TypeError(f"{kind}; Batch.from_data_list makes one of several graphs")
    if data.x is None:
        raise ValueError("the batch has no x, the features of the nodes")
    if data.edge_index is None and "adj_t" in data:
        raise ValueError("the batch has adj_t and no edge_index; leave out ToSparseTensor")
    if "ptr" in data:
        ptr = data.ptr
    elif data.batch is not None:
        raise ValueError("the batch has batch and no ptr; make it with Batch.from_data_list")
    else:
        ptr = torch.tensor([0, data.x.shape[0]], device=data.x.device)
    if ptr.numel() < 2 or data.x.shape[0] == 0:
        raise ValueError(f"the batch is empty: {ptr.numel() - 1} graphs with {len(data.x)} nodes")
    edge_index = ptr.new_empty(2, 0) if data.edge_index is None else data.edge_index
    if data.edge_attr is not None and data.edge_attr.shape[0] != edge_index.shape[1]:
        raise ValueError(
            f"edge_attr has shape {list(data.edge_attr.shape)}, expected a row for each of the "
            f"{edge_index.shape[1]} edges"
        )
    in_degree, out_degree = (
        data[name] if name in data else degree(ends, data.x.shape[0], torch.long)
        for name, ends in (("in_degree", edge_index[1]), ("out_degree", edge_index[0]))
    )
    largest: Any = None
    if not can_read(ptr):  # elsewhere ptr itself is read, which cannot be out of date
        if "ptr" not in data:
            largest = data.x.shape[0]
        elif "max_nodes" in data and isinstance(data["max_nodes"], int | torch.SymInt):
            largest = data["max_nodes"]
    return GraphBatch(data.x, ptr, edge_index, data.edge_attr, in_degree, out_degree, largest)


def register_batch(batch: Data) -> list[Any]:
    """Makes graphs of this type inputs of ``torch.export``, as a pytree of their attributes.

    Args:
        batch: a PyG ``Data`` or ``Batch`` with the attributes that a model is exported for.

    Returns:
        The ``dynamic_shapes`` of such an input, in the alphabetical order of its attributes: any
        number of nodes, edges, pairs and graphs.

    Example:
        >>> shapes = register_batch(batch)
        >>> program = torch.export.export(model.eval(), (batch,), dynamic_shapes=(shapes,))
    """
    kind = type(batch)
    if not hasattr(pytree, "register_pytree_node"):
        raise RuntimeError("register_batch: not with this torch; export a model of plain tensors")

    def flatten(data: Data) -> tuple[list[Any], list[str]]:
        found = {name: value for name, value in data.to_dict().items() if value is not None}
        return [found[name] for name in sorted(found)], sorted(found)

    def unflatten(values: Iterable[Any], names: list[str]) -> Data:
        made = cast(Any, kind.__bases__)
        return _filled(
            made[0](_base_cls=made[1]) if issubclass(kind, Batch) else kind(),
            dict(zip(names, values, strict=True)),
        )

    def flatten_with_keys(data: Data) -> tuple[list[Any], list[str]]:
        values, names = flatten(data)
        return [
            (pytree.MappingKey(name), value) for name, value in zip(names, values, strict=True)
        ], names

    if kind not in _REGISTERED:
        pytree.register_pytree_node(
            kind,
            flatten,
            unflatten,
            serialized_type_name=f"{kind.__module__}.{kind.__name__}",
            flatten_with_keys_fn=flatten_with_keys,
        )
        _REGISTERED.add(kind)
    values, names = flatten(batch)
    any_size = torch.export.Dim.DYNAMIC
    return [
        {int(name == "edge_index"): any_size} if isinstance(value, Tensor) else any_size
        for name, value in zip(names, values, strict=True)
    ]


_REGISTERED: set[type] = set()


def pair_rows(ptr: Tensor, num_nodes: int, index: Tensor | None = None) -> Tensor:
    """Returns where pairs of nodes are among all pairs of a batch, graph by graph, row major.

    Args:
        ptr: ``[B + 1]``, the nodes of each graph.
        num_nodes: the nodes of all graphs.
        index: ``[2, E]``, two nodes of one graph; every node with itself if None.
    """
    nodes = torch.arange(num_nodes, device=ptr.device)
    first, second = (nodes, nodes) if index is None else index
    sizes = ptr.diff()
    graph = set_of_row(ptr, num_nodes)[first]
    start = (sizes.square().cumsum(0) - sizes.square())[graph]
    return start + (first - ptr[graph]) * sizes[graph] + second - ptr[graph]


class GraphSliceformer(Model, config=GraphSliceformerConfig, preset=preset):
    r"""The graph model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the
    Graphormer of `"Do Transformers Really Perform Bad for Graph Representation?"
    <https://arxiv.org/abs/2106.05234>`_.

    .. math:: \hat{y} = \mu + \sigma \, W \, \mathrm{read}(\mathrm{LN}(f_L \circ \cdots \circ f_1
        (X_0, S + E)))

    with the mean and the deviation of the targets (0 and 1 if there are none) and blocks
    :math:`f_l` (:class:`~slicegraph.nn.EncoderBlock`). Softmax(S+E) is computed once and shared by
    all of them. A prediction does not depend on the other graphs of the batch.

    A bias of your own for each pair of nodes, such as one of 3D distances, is a subclass that
    overrides :meth:`pair_values`; see ``examples/distance_bias.py``.

    Args:
        config: the configuration.

    Shapes:
        - **batch**: a PyG ``Batch`` (or one graph) with ``x``, ``edge_index`` and ``edge_attr``,
          that went through :class:`~slicegraph.transforms.StructuralEncoding`; what it would have
          written is computed if it is missing. Or the plain tensors, see :meth:`forward`.
        - **output**: ``[B, num_targets]``, or ``[B, num_targets, num_classes]`` logits for the task
          ``"multiclass"``; a row for each node with ``task_level="node"``.

    Example:
        >>> model = GraphSliceformer.from_preset("mini")
        >>> edge_index, edge_attr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 0, 0]] * 2)
        >>> x = torch.tensor([[5, 0, 4, 5, 3, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]])
        >>> model(Data(x=x, edge_index=edge_index, edge_attr=edge_attr)).shape
        torch.Size([1, 1])
    """

    target_mean: Tensor | None
    target_std: Tensor | None
    feature_shift: Tensor
    feature_scale: Tensor

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__()
        self.config = c = config
        self.ring_nodes = c.ring_nodes
        tables = c.pick("node_dim", "max_degree", "padding_row")
        self.embedding = GraphEmbedding(
            c.channels,
            node_vocabulary=c.node_tables,
            token=c.token,
            in_degree_twice=c.in_degree_twice,
            walk_length=c.walks_of("node"),
            **tables,
        )
        sizes = {name: size for name, size in c.pick(*ENCODINGS).items() if size}
        self.encodings = torch.nn.ModuleDict(
            {name: torch.nn.Linear(size, c.channels) for name, size in sizes.items()}
        )
        self.input_dropout = c.input_dropout
        self.embedding_norm = torch.nn.LayerNorm(c.channels) if c.embedding_norm else None
        local, edge_walks = LOCALS[c.local], c.walks_of("edge")
        self.edge_embedding = self.edge_walks = None
        if local is not None and edge_walks:
            self.edge_walks = WalkEncoder(edge_walks, c.channels)
        if local is not None and local.keeps_state and (c.edge_vocabulary or c.edge_dim):
            self.edge_embedding = feature_encoder(c.channels, c.edge_tables, c.edge_dim)
        self.blocks = torch.nn.ModuleList(map(self._block, range(1, c.num_layers + 1)))
        self.structural_bias = None
        if ENCODER_MIXERS[c.mixer].needs_pairs:
            tables = c.pick("max_distance", "max_hops", "edge_dim", "padding_row")
            self.structural_bias = StructuralBias(
                c.heads,
                token=c.token,
                edge_vocabulary=c.edge_tables,
                hop_blocks=c.hop_blocks,
                empty_hops=c.empty_hops,
                walk_length=c.walks_of("pair"),
                layers=c.num_layers if c.walk_layers else 0,
                weights=c.pair_weights,
                **tables,
            )
        self.final_transform = (
            torch.nn.Linear(c.channels, c.channels) if c.final_transform else None
        )
        self.final_norm = NORMS[c.norm](c.channels)
        self.readout = GraphReadout(c.channels, c.readout, c.quantiles)
        outputs = c.num_targets * (c.num_classes if c.task == "multiclass" else 1)
        widths = [max(1, c.channels >> n) for n in range(c.head_layers)]
        widths[0] = self.readout.out_channels if c.task_level == "graph" else c.channels
        widths[0] = widths[0] * c.molecules + c.num_features
        self.head_hidden = torch.nn.ModuleList(map(torch.nn.Linear, widths, widths[1:]))
        self.head: Any = torch.nn.Linear(widths[-1], outputs) if not c.kernel_rows else None
        if c.kernel_rows:
            numbers = len(c.feature_columns), len(c.descriptors), c.fingerprint
            joined = (widths[0] - c.num_features, *numbers)
            self.head = KernelHead(c.kernel_rows, joined, c.num_targets, outputs // c.num_targets)
        self.reset_parameters()

    def _block(self, layer: int) -> EncoderBlock:
        c, local = self.config, cast(Any, LOCALS[self.config.local])
        options = c.pick("mixer", "order", "align", "num_layers", "quantiles")
        mixer: Any = NoMixer(c.channels)
        if c.mixer in MIXERS:
            mixer = Mixer(c.channels, c.heads, layer=layer, dropout=c.attention_dropout, **options)
        branch: Any = None
        if local is not None and local.keeps_state:
            branch = local(c.channels, norm=c.norm, update=layer < c.num_layers)
        elif local is not None:
            branch = local(c.channels, edge_vocabulary=c.edge_tables, edge_dim=c.edge_dim)
        options = c.pick("dropout", "post_norm", "recompute", "norm")
        return EncoderBlock(mixer, c.ffn_channels, local=branch, **options)

    @classmethod
    def from_graphormer_v1(
        cls, state_dict: dict[str, Tensor], mixer: str = "qkv", **overrides: Any
    ) -> "GraphSliceformer":
        """Imports a model of the official Graphormer v1 or Sliceformer code, with its weights.

        Sizes are read off the weights. A mixer without queries and keys leaves them out, so a
        Graphormer can start a Sliceformer.

        Args:
            state_dict: the tensors under their official names.
            mixer: the formula the weights are for, or the one to go on with.
            **overrides: other fields of the configuration, such as ``max_hops`` and ``dropout``.
        """
        needs_queries = mixer in MIXERS and MIXERS[mixer].needs_queries
        imported = read_graphormer_v1(state_dict, needs_queries)
        return cls._imported(*imported, {"mixer": mixer, **overrides}, "from_graphormer_v1")

    @classmethod
    def from_huggingface(
        cls, path: str | Path, mixer: str = "qkv", **overrides: Any
    ) -> "GraphSliceformer":
        """Imports a Graphormer of the transformers library with its weights, in evaluation mode.

        With ``mixer="qkv"`` it predicts what ``GraphormerForGraphClassification`` does (and
        :meth:`embed` gives the first row of ``GraphormerModel``) for undirected graphs with the
        same features and paths. Other mixers start from all weights but the queries and keys.

        Args:
            path: a folder with ``config.json`` and ``model.safetensors``. Nothing is downloaded.
            mixer: the formula the weights are for, or the one to go on with.
            **overrides: other fields of the configuration, such as ``dropout``; ``task`` if
                several outputs are not binary targets; ``node_vocabulary`` and
                ``edge_vocabulary`` if the features are not 512 categories each. A head of
                another size (``num_targets``) is initialised at random, as it is if there is none.
        """
        imported = read_huggingface(path, overrides.get("task"))
        return cls._imported(*imported, {"mixer": mixer, **overrides}, "from_huggingface").eval()

    @classmethod
    def _imported(
        cls, fields: dict[str, Any], weights: Weights, overrides: dict[str, Any], caller: str
    ) -> "GraphSliceformer":
        """Makes a model with the weights that fit; a head of another size keeps its own."""
        model = cls(GraphSliceformerConfig.from_dict(fields | overrides))
        own = model.state_dict()
        unused = ("query_proj.", "key_proj.", "structural_bias.", "token", "head.")
        for name in weights:
            if name not in own and not any(part in name for part in unused):
                raise ValueError(f"{caller}: the model has no {name!r}; leave out such overrides")
        used = {name: value for name, value in weights.items() if name in own}
        if "head.weight" in used and used["head.weight"].shape != own["head.weight"].shape:
            del used["head.weight"], used["head.bias"]
        for name in model.load_state_dict(used, strict=False).missing_keys:
            if not name.startswith("head."):
                remedy = "leave out the override that needs it"
                raise ValueError(f"{caller}: the checkpoint has nothing for {name!r}; {remedy}")
        return model

    def reset_parameters(self) -> None:
        """Resets all learnable parameters: tables are normal, linear layers depend on ``init``."""
        norms = (self.embedding_norm, self.final_norm)
        edges = (self.edge_embedding, self.edge_walks)
        for part in (self.embedding, self.structural_bias, self.blocks, *norms, *edges):
            reset(part)
        deviation = 0.02 / math.sqrt(self.config.num_layers)
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                if self.config.init == "torch":
                    module.reset_parameters()
                    continue
                torch.nn.init.normal_(module.weight, std=deviation)
                if module.bias is not None:
                    torch.nn.init.zeros_(module.bias)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Computes the mean and the standard deviation of the targets from the configuration."""
        for name, values in self.config.pick("target_mean", "target_std").items():
            buffer = None if values is None else self.head.weight.new_tensor(values)
            self.register_buffer(name, buffer, persistent=False)
        c = self.config
        if c.num_features:
            counts = (0.0,) * c.fingerprint, (1.0,) * c.fingerprint
            scales = tuple(1 / std if std else 0.0 for std in c.feature_std)
            buffers = {"feature_shift": c.feature_mean + counts[0]}
            buffers |= {"feature_scale": scales + counts[1]}
            for name, values in buffers.items():
                buffer = self.head.weight.new_tensor(values)
                self.register_buffer(name, buffer, persistent=False)

    def forward(
        self,
        x: Data | Tensor,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        **attributes: Tensor,
    ) -> Tensor:
        """Predicts the targets, in their unit.

        Args:
            x: a PyG ``Batch`` or graph, and nothing else; or the node features ``[N, F]``. Models
                of categories also take these as floats, see :meth:`one_hot`.
            edge_index: ``[2, E]``, the edges.
            edge_attr: ``[E, F]``, the edge features; refused if the configuration reads none.
            batch: ``[N]``, ascending: the graph of each node; one graph if None.
            **attributes: further attributes of a batch, such as ``random_walk_pe`` ``[N, k]``.
        """
        if isinstance(x, Tensor):
            self._check_tensors(edge_index, edge_attr, attributes)
            x = make_batch(x, edge_index, edge_attr, batch, **attributes)
        elif attributes or any(other is not None for other in (edge_index, edge_attr, batch)):
            kind = type(x).__name__
            raise ValueError(f"GraphSliceformer: x is a {kind}, expected no further arguments")
        return self.rescale(self.score(x))

    def with_deviation(self, batch: Data) -> tuple[Tensor, Tensor]:
        """Predicts the targets and, by a kernel head, the standard deviation of each, in their
        unit. A small deviation d of a logarithm to base 10 is one of value * ln(10) * d."""
        scores, spread = self.head.with_deviation(self.head_input(batch))
        values = self.rescale(scores)
        spread = spread if self.target_std is None else spread * self.target_std
        return values, spread * values * math.log(10) if self.config.log_target else spread

    def _check_tensors(
        self, edge_index: Any, edge_attr: Tensor | None, attributes: dict[str, Tensor]
    ) -> None:
        """Raises for a tensor that would not be read, or may be another, such as batch."""
        if edge_index is not None and is_sparse(edge_index):
            remedy = "torch_geometric.utils.to_edge_index(adj) makes [2, E]"
            raise ValueError(f"GraphSliceformer: edge_index is a sparse adjacency matrix; {remedy}")
        if "edge_weight" in attributes:
            remedy = "weights are edge features: edge_weight.unsqueeze(-1) with edge_dim=1"
            raise ValueError(f"GraphSliceformer: edge_weight is given; {remedy}")
        if edge_attr is None:
            return
        given, problem = f"{edge_attr.dtype} of shape {list(edge_attr.shape)}", None
        if edge_attr.dim() == 1 and not edge_attr.is_floating_point():
            problem = "expected [E, F]; give the graphs of the nodes by name, as batch=batch"
        elif not (self.config.edge_vocabulary or self.config.edge_dim):
            problem = "and the configuration has neither edge_dim nor edge_vocabulary"
        if problem is not None:
            raise ValueError(f"GraphSliceformer: edge_attr is {given}, {problem}")

    def one_hot(self, x: Tensor) -> Tensor:
        """Converts categories ``[N, F]`` to floats ``[N, sum(node_vocabulary)]``, for gradients.

        The model gives the same output for both. Masks and gradients, such as those of PyG's
        ``Explainer``, need the floats. Float features are returned as they are.

        Example:
            >>> explainer = Explainer(model, GNNExplainer(), ...)
            >>> explainer(model.one_hot(data.x), data.edge_index, edge_attr=data.edge_attr)
        """
        nodes = self.embedding.nodes
        return nodes.one_hot(x) if isinstance(nodes, FeatureTable) else x

    def rescale(self, scores: Tensor) -> Tensor:
        """Converts the output of :meth:`score` to the unit of the targets."""
        if self.target_mean is not None and self.target_std is not None:
            scores = scores * self.target_std + self.target_mean
        return 10**scores if self.config.log_target else scores

    def standardise(self, targets: Tensor) -> Tensor:
        """Converts targets to what :meth:`score` predicts; the inverse of :meth:`rescale`."""
        if self.config.log_target:
            targets = targets.log10()
        if self.target_mean is not None and self.target_std is not None:
            targets = (targets - self.target_mean) / self.target_std
        return targets

    def score(self, batch: Data) -> Tensor:
        """Computes the output of the head, for a loss: standardised targets, or logits."""
        out = self.head(self.head_input(batch))
        multiclass = self.config.task == "multiclass"
        return out.unflatten(-1, (-1, self.config.num_classes)) if multiclass else out

    def head_input(self, batch: Data) -> Tensor:
        """Computes what the last layer of the head reads."""
        x = self.embed(batch)
        if self.config.num_features:
            x = torch.cat([x, self._features(batch, x)], dim=-1)
        for layer in self.head_hidden:
            x = functional.gelu(layer(x))
        return x

    def _features(self, batch: Data, x: Tensor) -> Tensor:
        """Returns the standardised numbers of each graph, ``[B, F]``, for its vectors `x`."""
        shape = [x.shape[0], self.config.num_features]
        if "features" not in batch or list(batch.features.shape) != shape:
            found = f"of shape {list(batch.features.shape)}" if "features" in batch else "missing"
            raise ValueError(f"GraphSliceformer: features is {found}, expected {shape}")
        scaled = (batch.features.to(x.dtype) - self.feature_shift) * self.feature_scale
        columns = len(self.config.feature_columns)
        scaled = torch.cat([scaled[:, :columns], scaled[:, columns:].asinh()], dim=-1)
        return scaled.nan_to_num(0.0).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)

    def embed(self, batch: Data) -> Tensor:
        """Computes the vector of each graph, row of graphs, or node, which the head reads."""
        batch = self._with_rings(batch)
        graphs, token = read_batch(batch), self.config.token
        num_nodes = graphs.features.shape[0]
        # On a CPU the rows stay packed; elsewhere, and in a compiled graph, they are padded here.
        sets = None if can_read(graphs.ptr) else graphs.sets(token)
        walks = self._walks(batch, graphs)
        pairs = self.pair_bias(batch, graphs, walks, sets)
        x = self.embedding(
            *(graphs.features, graphs.in_degree, graphs.out_degree, graphs.ptr),
            added=self._encode(batch),
            walks=None if walks is None else walks[pair_rows(graphs.ptr, num_nodes)],
        )
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        if self.training:
            x = dropout(x, self.input_dropout)
        ptr, index = graphs.ptr, graphs.edge_index
        if token:  # a row in front of the nodes of each graph
            index = index + set_of_row(ptr, num_nodes)[index] + 1
            ptr = token_ptr(ptr)
        options: Any = {"ptr": ptr}
        if sets is not None:
            x, index, options = sets.pad(x), sets.slots[index], {"sets": sets}
        edges = Edges(index, graphs.edge_attr, self._edge_state(graphs, walks))
        of_nodes = self.config.task_level == "node"
        first_rows = token and not of_nodes
        x = encode(self.blocks, x, pairs=pairs, edges=edges, first_rows=first_rows, **options)
        if of_nodes:
            x = x if sets is None else sets.unpad(x)
            if token:
                nodes = torch.arange(num_nodes, device=x.device)
                x = gather_rows(x, nodes + set_of_row(graphs.ptr, num_nodes) + 1)
        if self.final_transform is not None:
            x = functional.gelu(self.final_transform(x))
        x = real_rows(self.final_norm, sets)(x)
        x = x if token or of_nodes else self.readout(x, **options)
        return x if self.config.molecules == 1 else self._joined(x)

    def _joined(self, x: Tensor) -> Tensor:
        """Joins the vectors ``[B * M, C]`` of the graphs of a row: ``[B, M * C]``."""
        count = self.config.molecules
        if x.shape[0] % count:
            listed = ", ".join(self.config.molecule_columns)
            problem = f"{x.shape[0]} graphs, expected {count} for each row ({listed})"
            raise ValueError(f"GraphSliceformer: the batch has {problem}")
        return x.reshape(-1, count * x.shape[1])

    def _with_rings(self, batch: Data) -> Data:
        """Adds the rings, unless the transform has added them already."""
        if self.ring_nodes is None or "num_rings" in batch:
            return batch
        compiled, edges = torch.compiler.is_compiling(), batch.edge_index
        if compiled or (edges is not None and not edges.is_cpu):
            place = "a compiled graph" if compiled else str(edges.device)
            remedy = f"apply {self.ring_nodes} to the batch before"
            raise ValueError(f"GraphSliceformer: rings cannot be found in {place}; {remedy}")
        batch = copy(batch)
        for name in STRUCTURE:  # of the nodes without rings; what is needed is computed again
            batch.pop(name, None)
        weights, width = batch.x, sum(self.config.node_tables or ())
        if not weights.is_floating_point() or weights.shape[1:] != (width,):  # see `one_hot`
            return self.ring_nodes(batch)
        sizes = len(weights), len(self.config.node_vocabulary or ())
        batch.x = weights.new_zeros(sizes, dtype=torch.int64)
        batch = self.ring_nodes(batch)
        atoms = (batch.x[:, 0] < self.ring_nodes.node_categories).nonzero()[:, 0]
        batch.x = self.one_hot(batch.x).to(weights).index_put((atoms,), weights)
        return batch

    def _encode(self, batch: Data) -> Tensor | None:
        """Projects the positional encodings of the nodes."""
        total = None
        for name, linear in self.encodings.items():
            size = linear.in_features
            if name not in batch or batch[name].shape != (batch.x.shape[0], size):
                shape = f"of shape {list(batch[name].shape)}" if name in batch else "missing"
                remedy = f"torch_geometric.transforms.{ENCODINGS[name].format(size)} writes it"
                expected = f"expected [{batch.x.shape[0]}, {size}]; {remedy}"
                raise ValueError(f"GraphSliceformer: {name} is {shape}, {expected}")
            added = linear(batch[name].to(linear.weight.dtype))
            total = added if total is None else total + added
        return total

    def pair_values(self, batch: Data, ptr: Tensor) -> Tensor | None:
        """Returns a bias of your own for each pair of nodes, which is added to S + E.

        Override it in a subclass; this one returns None. A subclass is saved as a
        ``GraphSliceformer`` with further weights, and
        ``slicegraph.models.load(folder, choose=lambda _: Subclass)`` loads it.

        Args:
            batch: the batch that the model was called with, as a PyG ``Data``.
            ptr: ``[B + 1]``, the nodes of each graph.

        Returns:
            ``[P, heads]`` for all pairs of nodes of a graph, in the order of
            :func:`slicegraph.nn.all_pairs`.
        """
        return None

    def _walks(self, batch: Data, graphs: GraphBatch) -> Tensor | None:
        """Returns the random-walk probabilities of all pairs, if they are read."""
        if not self.config.walk_length:
            return None
        if "pair_walk" in batch:  # written by StructuralEncoding
            return batch.pair_walk
        options = (self.config.walk_length, graphs.num_pairs)
        return random_walks(graphs.edge_index, graphs.ptr.long(), *options)

    def _edge_state(self, graphs: GraphBatch, walks: Tensor | None) -> Tensor | None:
        """Computes the vectors of the edges that all layers share or begin with."""
        state: Tensor | None = None
        local = LOCALS[self.config.local]
        if local is not None and local.keeps_state:
            state = self.head.weight.new_zeros(graphs.edge_index.shape[1], self.config.channels)
        if self.edge_embedding is not None:
            if graphs.edge_attr is None:
                raise ValueError("GraphSliceformer: edge_attr is missing, expected edge features")
            state = self.edge_embedding(graphs.edge_attr)
        if self.edge_walks is None or walks is None:
            return state
        rows = pair_rows(graphs.ptr, graphs.features.shape[0], graphs.edge_index)
        added = self.edge_walks(walks[rows])
        return added if state is None else state + added

    def pair_bias(
        self,
        batch: Data,
        graphs: GraphBatch | None = None,
        walks: Tensor | None = None,
        sets: PaddedSets | None = None,
    ) -> PairBias | None:
        """Computes S + E of a batch; None if the mixer does not use it."""
        if self.structural_bias is None:
            return None
        batch = self._with_rings(batch)
        c, graphs = self.config, read_batch(batch) if graphs is None else graphs
        walks = self._walks(batch, graphs) if walks is None else walks
        ptr, edge_index = graphs.ptr, graphs.edge_index
        if "pair_distance" in batch and "pair_path" in batch:  # written by StructuralEncoding
            graph = set_of_row(ptr, graphs.features.shape[0])[edge_index[0]]
            edge_ptr = torch.searchsorted(graph, torch.arange(ptr.numel(), device=ptr.device))
            pair_ptr = functional.pad(ptr.diff().square().cumsum(0), (1, 0))
            encoding = ShortestPaths(batch.pair_distance, batch.pair_path, pair_ptr, edge_ptr)
        else:
            encoding = self.structural_bias.find_paths(edge_index, ptr, graphs.num_pairs)
        return self.structural_bias(
            *(encoding, ptr, graphs.edge_attr),
            softmax=ENCODER_MIXERS[c.mixer].needs_softmax,
            values=self.pair_values(batch, ptr),
            walks=walks,
            sets=graphs.sets(c.token) if sets is None else sets,
        )

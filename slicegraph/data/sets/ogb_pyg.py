"""OGB's own PyG data sets, at work again on torch 2.6 and later, and never at a prompt.

OGB reads its files by a plain `torch.load`, which refuses them now, and asks on standard input
whether to download or to update. The classes here are OGB's with both replaced.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ogb import graphproppred, lsc
from ogb.utils import smiles2graph
from ogb.utils.torch_util import replace_numpy_with_torchtensor
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from slicegraph.data.sets.lsc import LSC, LscSource
from slicegraph.data.sets.ogbg_mol import MolSource
from slicegraph.data.sets.source import Source
from slicegraph.data.sets.torch_files import read_pt


class _SafeFiles(InMemoryDataset):
    """Reads by `read_pt`, and fetches without a question."""

    source: Source

    def _open(self, transform: Callable | None, pre_transform: Callable | None) -> None:
        self.source.fetch()
        InMemoryDataset.__init__(self, str(self.source.folder), transform, pre_transform)
        self.data, self.slices = read_pt(self.processed_paths[0])

    def _process(self) -> None:
        # PyG itself reads these two, and would run code in them: look first whether they are data.
        for name in ("pre_transform.pt", "pre_filter.pt"):
            if Path(self.processed_dir, name).is_file():
                read_pt(Path(self.processed_dir, name))
        super()._process()

    def download(self) -> None:
        self.source.fetch()


class _SafeLsc(_SafeFiles):
    """What the two data sets of OGB-LSC share."""

    _name: str
    source: LscSource

    def __init__(
        self,
        root: str | Path = "dataset",
        smiles2graph: Callable[[str], dict[str, Any]] = smiles2graph,
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
    ) -> None:
        self.source = LscSource(self._name, root)
        self.original_root, self.smiles2graph = str(root), smiles2graph
        self.folder, self.version, self.url = str(self.source.folder), 1, self.source.facts.url
        self._open(transform, pre_transform)

    def get_idx_split(self) -> dict[str, Tensor]:
        return replace_numpy_with_torchtensor(self.source.split_rows())


class PygPCQM4Mv2Dataset(_SafeLsc, lsc.PygPCQM4Mv2Dataset):
    """OGB's `PygPCQM4Mv2Dataset`.

    Example:
        >>> dataset = PygPCQM4Mv2Dataset(root="dataset")
        >>> dataset[dataset.get_idx_split()["train"]]
        PygPCQM4Mv2Dataset(3378606)
    """

    _name = "pcqm4m-v2"


class PygPCQM4MDataset(_SafeLsc, lsc.PygPCQM4MDataset):
    """OGB's `PygPCQM4MDataset`, the first version of PCQM4M."""

    _name = "pcqm4m"


class PygGraphPropPredDataset(_SafeFiles, graphproppred.PygGraphPropPredDataset):
    """OGB's `PygGraphPropPredDataset`, for the ogbg-mol* sets."""

    source: MolSource

    def __init__(
        self,
        name: str,
        root: str | Path = "dataset",
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
    ) -> None:
        self.source = MolSource(name, root)
        self.name, self.meta_info = name, self.source.meta
        self.original_root, self.dir_name = str(root), self.source.folder.name
        self.download_name, self.eval_metric = self.meta_info["download_name"], self.source.metric
        self.num_tasks, self.task_type = self.source.num_tasks, self.meta_info["task type"]
        self.__num_classes__ = int(self.meta_info["num classes"])
        self.binary = self.meta_info["binary"] == "True"
        self._open(transform, pre_transform)

    def get_idx_split(self, split_type: str | None = None) -> dict[str, Tensor]:
        return replace_numpy_with_torchtensor(self.source.split_rows(split_type))


def open_ogb(name: str, root: str | Path = "dataset", **options: Any) -> InMemoryDataset:
    """A data set of OGB as OGB's own PyG object, read from OGB's folder.

    Args:
        name: "pcqm4m-v2", "pcqm4m" or an ogbg-mol* set.
        root: the folder of OGB's folders.
        options: what OGB's class takes: ``transform``, ``pre_transform``, ``smiles2graph``.

    Example:
        >>> open_ogb("pcqm4m-v2")[0]
        Data(edge_index=[2, 40], edge_attr=[40, 3], x=[18, 9], y=[1], num_nodes=18)
    """
    if name in LSC:
        classes = {"pcqm4m-v2": PygPCQM4Mv2Dataset, "pcqm4m": PygPCQM4MDataset}
        return classes[name](root, **options)
    return PygGraphPropPredDataset(name, root, **options)

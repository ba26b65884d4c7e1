"""A PyG `Data` of tensors, without the time that its constructor takes."""

from weakref import ref

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage

_EMPTY = Data()
_IS_KNOWN = vars(_EMPTY._store).keys() == {"_mapping", "_parent"}


def graph_data(**tensors: Tensor) -> Data:
    """As ``Data(**tensors)``, which takes a tenth of the time of `featurize` to set each by name.

    What PyG does to copy a `Data`; if its parts are others than are known here, it is asked.

    Example:
        >>> graph_data(x=torch.zeros(3, 9))
        Data(x=[3, 9])
    """
    if not _IS_KNOWN:
        return Data(**tensors)
    data, store = Data.__new__(Data), GlobalStorage.__new__(GlobalStorage)
    vars(store).update(_mapping=tensors, _parent=ref(data))
    vars(data).update(vars(_EMPTY), _store=store)
    return data

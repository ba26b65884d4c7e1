"""A molecule of a store as a PyG graph."""

from typing import Any

from torch_geometric.data import Data


class MoleculeData(Data):
    """A `Data` whose `index`, the position in the store, says which molecule it is.

    PyG adds node counts to every attribute with "index" in its name when it makes a batch; this
    one is not a node number and stays.
    """

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 0 if key == "index" else super().__inc__(key, value, *args, **kwargs)

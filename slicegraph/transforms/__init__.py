"""PyG transforms: what the models read from a graph's structure."""

from slicegraph.transforms.structural_encoding import StructuralEncoding

__all__ = ["StructuralEncoding"]

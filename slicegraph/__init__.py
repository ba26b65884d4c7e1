"""Graph learning that sorts instead of attending: Sliceformer layers for PyTorch Geometric."""

__version__ = "0.1.0"

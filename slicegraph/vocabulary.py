"""The sizes of OGB's categorical features, which data and models share."""

__all__ = ["OGB_ATOMS", "OGB_BONDS"]

OGB_ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""The number of categories of each atom feature, as `ogb.utils.features` counts them."""

OGB_BONDS = (5, 6, 2)
"""The number of categories of each bond feature."""

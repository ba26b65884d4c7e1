"""The sizes of OGB's categorical features, and how rows of several molecules are written."""

__all__ = ["JOINT", "OGB_ATOMS", "OGB_BONDS"]

OGB_ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""The number of categories of each atom feature, as `ogb.utils.features` counts them."""

OGB_BONDS = (5, 6, 2)
"""The number of categories of each bond feature."""

JOINT = ">>"
"""The sign between the molecules of a row with several; SMILES and InChI do not have it."""

"""One molecule: from SMILES to a graph with OGB's features."""

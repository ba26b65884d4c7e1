"""Data sets by name: OGB's, PyG's, QM9, the shipped one, a user's own table."""

"""Molecules on disk: memory-mapped arrays that prove themselves."""

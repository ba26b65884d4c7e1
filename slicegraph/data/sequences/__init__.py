"""Sequences and pictures: ListOps, Pathfinder, the Long Range Arena."""

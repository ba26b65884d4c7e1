"""The parts of `python -m benchmarks.accuracy`."""

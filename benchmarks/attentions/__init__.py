"""The parts of `python -m benchmarks.attention`: methods, encoder, measurement, tables."""

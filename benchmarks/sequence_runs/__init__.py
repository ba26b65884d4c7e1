"""The parts of `python -m benchmarks.sequences`: budgets, runs, speeds, tables."""

"""The rows of `python -m benchmarks.attention`: attentions of others, ours, and what they share."""

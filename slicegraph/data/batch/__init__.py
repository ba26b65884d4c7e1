"""From a store to the batches that a model takes."""

"""From a table to a store: streamed, in parallel, resumed where it stopped."""

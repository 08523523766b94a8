"""Partitions replayed into the rows of every table; start at `partitions.replayed`. Imports all other rooms."""

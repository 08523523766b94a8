"""Partitions replayed into the rows of every table; `partitions.replayed` is the door. Imports all other rooms."""

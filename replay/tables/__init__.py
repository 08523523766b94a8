"""One partition replayed into the rows of every table; `partition_replay` is the door. Imports all other rooms."""

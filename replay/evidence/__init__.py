"""Evidence from log lines before they have an order: tenures, roles, times and gaps.

All of it is looked up through `partition_facts`. Imports `arrays`, `protocol` and `engine` (its codes and stamps).
"""

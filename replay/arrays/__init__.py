"""What rules are written in: arrays, Arrow columns, compiled functions. Nothing here knows of Kafka.

Imports numpy, pyarrow, numba and no other room; `code_cache` imports `replay` and `schemas` to hash their sources.
"""

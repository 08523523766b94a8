"""What rules are written in: arrays, Arrow columns, compiled functions. Nothing here knows of Kafka.

Imports numpy, pyarrow, numba; nothing of `replay`.
"""

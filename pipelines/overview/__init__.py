"""What holds for a whole recording, found by aggregates over all of its facts: what is covered, what is missing.

Imports `spark`.
"""

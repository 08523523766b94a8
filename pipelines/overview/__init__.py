"""What holds for a whole recording, found by aggregates over all of its facts: what is covered, who stood still.

Imports `spark`.
"""

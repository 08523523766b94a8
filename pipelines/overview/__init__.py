"""What holds for a whole recording, aggregated over all of its facts: what is covered, which brokers stood still.

Imports `spark`.
"""

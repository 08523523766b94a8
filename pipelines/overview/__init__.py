"""What is found by looking at all facts of a recording: what is covered, which brokers stood still.

Imports `spark`.
"""

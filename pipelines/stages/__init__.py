"""The stages, DataFrame in and DataFrame out, the words of the report, and `run`, which calls one after another.

Imports all other rooms.
"""

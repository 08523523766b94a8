"""The stages, from DataFrame to DataFrame; the words of the report; and `run`, which calls the stages in turn.

Imports all other rooms.
"""

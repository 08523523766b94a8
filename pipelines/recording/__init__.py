"""A recording as a folder: which files there are, whose they are, what its manifest says, and their lines as streams.

Imports `lines`: a manifest names layouts and time zones.
"""

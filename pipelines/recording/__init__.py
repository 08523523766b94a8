"""A recording as a folder: its files, the brokers they belong to, its manifest, and its lines as streams.

Imports `lines`: a manifest names layouts and time zones.
"""

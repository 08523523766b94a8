"""Parsers: files of a recording in, facts and rejected lines out.

Four rooms: `wordings` (brokers' lines), `requests` (request lines), `dumps` (what Kafka's tools and directories tell)
know nothing of each other; `files` puts them together. Imports `lines`, `recording`.
"""

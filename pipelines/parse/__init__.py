"""Parsers: turn files of a recording into facts and rejected lines.

Four rooms: `wordings` (brokers' lines), `requests` (request lines), `dumps` (what Kafka's tools and directories tell)
know nothing of each other; `files` puts them together. Imports `lines`, `recording`.
"""

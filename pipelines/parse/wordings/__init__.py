"""What brokers' lines say: tables of wordings by subject, `server_rules` with all of them, `server_log` that looks up.

Imports `lines`.
"""

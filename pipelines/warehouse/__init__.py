"""Delta: every read and write of tables, and how older tables are brought up to date.

Also which rows a run replaces, and which facts a new reading replaces.

Imports `spark`; `recording` and `parse` for names and for the contents of files.
"""

"""Delta: every read and write of tables, which rows a run replaces, and which facts a new reading replaces.

Imports `spark`; `recording` and `parse` for names and for the contents of files.
"""

"""Delta: every read and write of tables, which rows a run looks at, and which facts a new reading replaces.

Imports `spark`; `recording` and `parse` for names and for what is said of files.
"""

"""What must hold of the tables: rules derived from `schemas`, cross-table invariants, and their Data Docs.

Imports `warehouse`.
"""

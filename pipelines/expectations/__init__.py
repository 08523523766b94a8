"""What must hold for the tables: rules derived from `schemas`, invariants across tables, and their Data Docs.

Imports `warehouse`.
"""

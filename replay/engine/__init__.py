"""One partition's events meet the rules one by one and leave rows: the fold, its codes, the purgatories.

Imports `arrays` and `protocol`.
"""

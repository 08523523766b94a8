"""One file: what it is, whose its lines are, what stands before them, and which parser gets them.

`file_parser.parse_file` is the door. Imports the other rooms of `parse`.
"""

"""What came in, file by file: whose each is, whether clocks agree, what it holds, and so what can be answered.

`collect` parses a whole recording in one process. Imports `lines`, `recording`, `parse`.
"""

"""What was read, file by file: which broker wrote it, whether clocks agree, and what the recording can answer.

`collect` parses a whole recording in one process. Imports `lines`, `recording`, `parse`.
"""

"""A log line before anybody asks what it says: its layout, its time, who wrote it; and the fact rows it becomes.

Imports no other room. No Spark here, nor in `recording`, `parse` and `intake`.
"""

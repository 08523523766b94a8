"""Log lines before their meaning is parsed: layout, time and writer; and the fact rows that lines become.

Imports no other room. Neither this room nor `recording`, `parse` and `intake` use Spark.
"""

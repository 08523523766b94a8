"""What an operator asks of the tables, one thing at a time: an incident, a partition, a record, a broker.

Plain functions over Arrow tables, without Spark: each reads only the rows that it needs, and returns values that JSON
has, besides times. How they look on a terminal is the jobs' business.
"""

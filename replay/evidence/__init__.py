"""What the lines of one partition say, before they have an order: decisions, tenures, roles, times, what is missing.

`partition_facts` is where all of it is looked up. Imports `arrays`, `protocol`, `engine` (its codes).
"""

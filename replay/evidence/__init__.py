"""What the lines say of a partition, a broker or the cluster before they have an order: tenures, roles, times, gaps.

`partition_facts` is where all of it is looked up. Imports `arrays`, `protocol`, `engine` (its codes and stamps).
"""

"""From facts to events in one deterministic order: chains that Kafka keeps in order, merged by what answers allow.

`order` is the door. Imports `arrays`, `protocol`, `engine`, `evidence`: the merge asks the rules themselves what may
happen next.
"""

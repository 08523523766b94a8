"""From facts to events in one deterministic order: chains that Kafka keeps in order, merged as the answers allow.

Start at `order`. Imports `arrays`, `protocol`, `engine` and `evidence`: the merge asks the rules themselves what may
happen next.
"""

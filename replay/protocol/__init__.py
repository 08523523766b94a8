"""Kafka's rules, a function each: the nine steps, ISR, epochs and truncation, elections, version differences.

Each takes the state and changes it in place; no rule knows where an event was read. Imports `arrays`.
"""

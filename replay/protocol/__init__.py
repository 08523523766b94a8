"""Kafka's rules, a function each: the nine steps, ISR, epochs and truncation, elections, what versions change.

State in, state changed in place; no rule knows where an event was read. Imports `arrays`.
"""

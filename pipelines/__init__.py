"""Recordings in, Delta tables out: parse, order, replay, validate, report."""

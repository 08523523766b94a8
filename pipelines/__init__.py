"""Recordings in, Delta tables out, in nine rooms (CONTRIBUTING.md): each imports only from those before it."""

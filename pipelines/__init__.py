"""Turns recordings into Delta tables. Nine rooms (CONTRIBUTING.md): each imports only from those before it."""

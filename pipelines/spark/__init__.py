"""How we use Spark: the session, its Python workers, its types, and Arrow moved through it as bytes.

Nothing here knows of recordings or stages. Imports no other room.
"""

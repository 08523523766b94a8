"""How Tidemark uses Spark: the session, its Python workers, types, and Arrow data passed through Spark as bytes.

Nothing here knows of recordings or stages. Imports no other room.
"""

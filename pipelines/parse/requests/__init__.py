"""What lines of the request log say, as JSON and as text: the shapes that are read, and the facts made of them.

`request_log` is the door. Imports `lines`.
"""

"""From the folders of brokers to a recording: logs, dumps, checkpoints, settings; with pseudonyms, if wanted.

`collector` is the door. It only reads what it finds there, and only adds to the recording. Imports `lines`,
`recording` and `parse`.
"""

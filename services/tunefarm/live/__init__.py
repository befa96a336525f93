"""Live progress of a run, for the command and for the client's ``wait``.

`waiting` follows a run on a `board`, which `bars` draws; `stage` lets several be drawn at once.
"""

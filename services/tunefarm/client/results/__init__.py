"""The values that the client returns, read from the server's answers.

`reading` turns JSON into the classes of the other modules, `shown` shows them in a REPL and a notebook.
"""

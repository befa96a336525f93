"""The values that the client returns, read from the server's answers."""

"""What the client returns: frozen values read from the server's answers."""

"""How a run goes on, live: for the command, and for the client's `wait`."""

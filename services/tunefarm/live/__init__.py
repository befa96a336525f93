"""Live progress of a run, for the command and for the client's ``wait``."""

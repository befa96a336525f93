"""Devices as child processes use them: sessions with them (`session`), and the state and timing of GPUs (`gpu`)."""

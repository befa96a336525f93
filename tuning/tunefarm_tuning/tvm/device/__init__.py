"""The devices of child processes: sessions (`session`), and the state and timing of GPUs (`gpu`)."""

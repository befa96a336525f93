"""The interface to the engine, and its implementations: TVM and replay."""

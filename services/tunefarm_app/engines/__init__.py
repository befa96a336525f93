"""The door to the engine, and who stands behind it: TVM, or the replay engine."""

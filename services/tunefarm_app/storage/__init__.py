"""The content-addressed store, and conversions between the database's values and the engine's."""

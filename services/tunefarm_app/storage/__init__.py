"""The content-addressed store, and values between the database's form and the engine's."""

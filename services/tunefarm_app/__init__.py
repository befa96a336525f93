"""Use cases: the only code that uses both the engine and the database."""

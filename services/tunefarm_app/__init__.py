"""Use cases: the only code that joins the engine and the database."""

"""Tuning records: the measured facts, the history that is looked up in them, and what others can learn from."""

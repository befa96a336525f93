"""Tuning records: their contents, the history for the compiler, and transfer between tasks."""

"""Tuning records, and what is looked up in them."""

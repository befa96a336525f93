"""Tuning records and searches in them."""

"""Tuners: ask for configs, tell what became of them."""

"""Targets: what we compile for, by which names, and what such machines can do."""

"""Keeping a farm well: checks, reconciler, retention, backup and restore."""

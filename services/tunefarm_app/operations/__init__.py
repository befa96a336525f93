"""Operating a farm: checks, reconciler, retention, backup and restore."""

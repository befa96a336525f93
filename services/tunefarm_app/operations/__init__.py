"""Operating a farm: checks, reconciler, retention, backup and restore.

`doctor` checks the farm (`device_checks`; `check_results` is what checks return), `reconcile` restarts lost work, `retention` deletes what is
old, `backup` writes and reads a farm's data as one file (`archive_members`, `encryption`).
"""

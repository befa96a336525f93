"""The tuning engine: models in, tasks, search, measurement, records, compile. Knows no service."""

"""Running steps; the steps that import, extract, compile and generate sources."""

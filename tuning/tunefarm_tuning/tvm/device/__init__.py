"""Sessions with a device, and timing on it."""

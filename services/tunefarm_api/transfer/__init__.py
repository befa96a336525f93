"""Bodies in and out: uploads, downloads, JSON lines."""

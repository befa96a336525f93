"""What it brings that building, measuring and search overlap across rounds."""

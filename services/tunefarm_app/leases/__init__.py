"""The claims of a step: its lease, its device, its turn."""

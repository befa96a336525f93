"""What a step holds: its lease, its device, its turn."""

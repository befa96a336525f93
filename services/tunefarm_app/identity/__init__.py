"""What API, gateway, workers and devices know each other by: certificates of the farm's own authority, and tickets of leases."""

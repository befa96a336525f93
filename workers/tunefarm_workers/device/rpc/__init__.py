"""Start, watch and restart the device's RPC server."""

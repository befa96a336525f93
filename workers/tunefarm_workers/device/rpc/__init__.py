"""The device's RPC server: started, watched, restarted."""

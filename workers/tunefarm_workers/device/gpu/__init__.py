"""The GPUs of a device's machine."""

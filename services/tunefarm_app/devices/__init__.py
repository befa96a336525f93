"""Devices: registration, calibration, peaks, history."""

"""Devices, their calibrations, peaks and history."""

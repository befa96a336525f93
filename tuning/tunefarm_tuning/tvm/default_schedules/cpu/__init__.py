"""The rules of default schedules for CPUs, one a module."""

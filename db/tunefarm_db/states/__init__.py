"""The states of jobs and devices, and their transitions."""

"""Which kernels of a network are tuning tasks, and what may take their place."""

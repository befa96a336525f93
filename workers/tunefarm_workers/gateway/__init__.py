"""The gateway: workers and devices dial it, and it connects a worker that holds a lease with the device that it leased."""

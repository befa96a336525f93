"""The states of jobs and devices, and the ways between them."""

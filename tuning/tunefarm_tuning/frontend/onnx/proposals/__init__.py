"""Bindings to propose for what a file leaves open, and the trial of them."""

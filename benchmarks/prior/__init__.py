"""Collecting trials, and fitting the priors that ship with the engine."""

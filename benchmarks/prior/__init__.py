"""Collect trials, and fit the priors that ship with the engine."""

"""Compile a model with its history into a checked artifact."""

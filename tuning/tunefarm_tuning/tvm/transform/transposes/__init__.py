"""Transpose propagation: moving transposes through a network to where they cancel, or move fewer elements."""

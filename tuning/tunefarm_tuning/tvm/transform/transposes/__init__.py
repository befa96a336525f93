"""Transpose propagation: move transposes through a network until they cancel or move fewer elements."""

"""Transpose propagation: moving, cancelling and sinking transposes of a network."""

"""The form of a model that all but the first checks read."""

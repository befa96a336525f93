"""From a model and its history to one checked artifact."""

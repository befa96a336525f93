"""Access to the farm: API keys and browser sessions."""

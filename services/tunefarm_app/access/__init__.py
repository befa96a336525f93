"""Who may use the farm: API keys and browser sessions."""

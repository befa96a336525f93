"""Cost models: from a config, without building it, how fast it will likely be."""

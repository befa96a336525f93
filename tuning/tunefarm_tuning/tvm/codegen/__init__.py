"""From a prepared module to a library."""

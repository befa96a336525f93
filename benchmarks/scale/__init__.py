"""How big a farm may be: real processes and a replay engine, by the number of devices."""

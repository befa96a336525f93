"""The farm as a whole: API keys, counters, statistics, retention."""

"""The life of a trial: plan, prefetch, round, commit."""

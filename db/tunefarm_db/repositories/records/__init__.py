"""Tuning records and searches in them.

`records` of `workloads` (with their spaces), and what else is known of kernels: `findings`, `sources`. `transfer` finds records to learn
from, `searches` those that a page shows, `purges` deletes those that cannot be trusted.
"""

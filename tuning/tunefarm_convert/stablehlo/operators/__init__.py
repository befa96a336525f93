"""Converters of StableHLO's operators, by family."""

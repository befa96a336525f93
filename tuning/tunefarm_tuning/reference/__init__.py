"""Correct outputs of a network: reference runs, random inputs, comparison within a tolerance."""

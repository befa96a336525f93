"""Conformance suites for implementations of the engine's interfaces; only tests import them."""

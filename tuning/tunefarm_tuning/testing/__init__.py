"""Conformance suites for what others implement; imported by tests alone."""

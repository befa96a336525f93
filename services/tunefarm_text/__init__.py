"""Texts that all parts of tunefarm share: quantities, and the terms of a job. Imports only the standard library."""

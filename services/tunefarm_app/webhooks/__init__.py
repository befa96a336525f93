"""Webhooks: registration, signatures, sending."""

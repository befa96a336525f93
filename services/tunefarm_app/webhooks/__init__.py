"""Webhooks: registered, signed, sent."""

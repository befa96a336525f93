"""Webhooks: registration, signatures, sending.

`register` takes a webhook whose `address` may be used; `sender` sends its deliveries, each by `request`.
"""

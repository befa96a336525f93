"""Access to the farm: API keys and browser sessions.

`api_keys` and `browser_sessions` say who sends a request, `rates` and `quotas` how much that one may use. `audit` notes who did what,
`audit_pruning` shortens its log.
"""

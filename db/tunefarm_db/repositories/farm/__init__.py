"""The farm as a whole: API keys, counters, statistics, retention.

Who may what: `api_keys`, and their `usage`; who did what: `audit`. What pages and metrics show: `overview`, `statistics`, `counters`.
`references` finds what a person means by a text, `retention` what has not been used for long.
"""

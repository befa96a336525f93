"""Texts that all parts of tunefarm share: quantities, and the terms of a job. Imports only the standard library.

What people give: `job_terms`, `bindings` of inputs and their shapes (`shape_text`). What they read: `quantities`, `algorithms`,
`coverage_words`, `trace_words`. `audit_chain` is how the audit log is hashed.
"""

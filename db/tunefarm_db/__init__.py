"""The database: tables, repositories, unit of work, migrations. Frozen values out, rows never.

A `unit_of_work` is a transaction with `repositories`, which read and write `tables` and return `values`; `states` says how jobs and devices
change, `acting` who acts, `ids` what rows are called. `engine` opens a database, `schema` upgrades it by `migrations`; `worker_role` limits
what workers see of it, `dump` writes it as lines.
"""

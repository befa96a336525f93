"""Use cases: the only code that uses both the engine and the database.

In the order in which a job meets them: `models` takes a network's file, which `storage` keeps; `jobs` takes what people ask for; `steps` runs
the work, each piece under a claim (`leases`), and calls the engine by `engines`; `tuning` is the steps of the search; `records` and `report`
show what came of it.

Beside that: `devices` that measure, `webhooks` that tell of events, `access` and `identity` (who may do what, and who is who), `operations`
of the whole farm. `runtime` composes a process from its `settings`.
"""

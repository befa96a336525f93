"""People's commands for jobs: submit, change, pause, retry, cancel.

- A job begins: `submit`, after `terms` has checked what is asked for; several at once: `sweeps`; on the same terms: `again`.
- While it runs: `control` (cancel, finish, pause, resume, retry) and `change`; `progress` says how far it is. `transitions` moves it to its
  next phase, `whole_budget` says how much of a budget its search gets.
- What it offers before its artifact: `drafts`; `network_timings` says when the search compiles and times the network.
- Once it has ended: `artifacts`, `measure_again`, `trace`.
"""

"""The search: rounds of candidates over a model's tasks until the budget is spent.

`tune` starts a `loop`. For each round, `round_queue` has the `scheduler` choose a task (`task_groups`: a kernel and its alternatives count
once) and prepares it ahead if that pays; `round` asks the tuner and builds (`candidates`), then measures (`measuring`, `trial_outcome`), as
the service's tune step does, too. `progress` is what is known of a task. The `loop` ends with its `budget`, and with the `confirmation` of
the winners. It tells its caller `events`, and returns a `result`.
"""

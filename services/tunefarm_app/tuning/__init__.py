"""The life of a trial: plan, prefetch, round, commit.

`tune_step` is one round, stage by stage: `plan` chooses its task or ends the search, `network_timing` times the network first if that is due,
`round` builds and measures (`task_round`, with the `rebuilt_tuner` of its task; `time_check` refuses times that cannot be) while `prefetch`
prepares the next one, `commit` writes the result and plans the next step.

After the search, `confirmation` chooses the tasks whose best kernels `confirm_step` measures again.
"""

"""The base of every process of the farm: composition, dispatch, logs.

`composition` makes the services of a process, `dispatch` sends steps to workers, within the limits of `step_limits`. `logs` is its log,
`full_disk` recognises that error.
"""

"""The interface to the engine, and its implementations: TVM and replay.

`interface` has `Engine`. `tvm` is a worker's; it reaches a device by `remote_device`, and keeps its children for the next round
(`kept_children`). `replay` is for tests and drills, and compiles and measures nothing: a `scenario` is uploaded and gives the tasks,
`simulated_tasks` and `recorded_tasks` their spaces and results, `replay_measuring` builds and measures them, through real sessions by
`replay_sessions`.
"""

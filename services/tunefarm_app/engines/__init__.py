"""The interface to the engine, and its implementations: TVM and replay.

`interface` has `Engine`. `tvm` is a worker's; it reaches a device by `remote_device`. `replay` is for tests and drills: it measures nothing,
and takes its tasks from `simulated_tasks` or `recorded_tasks`, through real sessions by `replay_sessions`.
"""

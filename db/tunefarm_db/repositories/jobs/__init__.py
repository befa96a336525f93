"""Jobs, their steps, tasks, trials and events.

`jobs` and their `job_tasks`; `steps` are the queue, `job_steps` those of one job, `turns` who comes next on a device. What a job leaves:
`trials`, `events`, `traces`, `network_timings`, `artifacts`. `sweeps` are several jobs.
"""

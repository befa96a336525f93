"""The claims of a step: its lease, its device, its turn.

A step's code gets a `step_context`; its `step_lease` renews the leases of the step and its device meanwhile, and `device_lease_keeper` that of
a device outside of steps. `device_turns` says which job gets a free device, `device_wait` has a step wait for one, `device_blame` says what
a failure means for a device. `tracks` lets rounds of one job run side by side; `job_lock` keeps a job as it is for a moment.
"""

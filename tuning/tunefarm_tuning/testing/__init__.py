"""Conformance suites for implementations of the engine's interfaces; only tests import them.

`builder_contract`, `runner_contract` and `tuner_contract` are the suites. What they and other tests run on: `workloads`, `synthetic` tasks,
`records`, devices by `local_rpc`, and `bad_kernels`.
"""

"""Running steps; the steps that import, extract, compile and generate sources.

`run` claims a step and calls its module; `failure_policy` says what follows from an error. In the order of a job: `import_step`,
`samples_step`, `extract_step` (with `new_workloads`), `draft_step` (with `draft_watch`), `compile_step` (with `attestation`),
`measure_step`, `source_step`. The steps of the search are in `tunefarm_app.tuning`.
"""

"""The content-addressed store, and conversions between the database's values and the engine's.

`blob_store` keeps files, `staged_blob` one that is still coming, `file_names` how they are called outside. `rows` converts models, tasks and
records; `job_options` and `pipelines` read what a job's row means; `json_text` checks JSON of others.
"""

"""The dashboard's pages of jobs and their tasks.

- Lists: `jobs_page` (its rows: `job_line`), `comparison_page`.
- A job: `job_form` begins one; `job_page` shows what `job_rows` read: `job_view`, `task_view`, `phases`, `time_bar`, the log (`log_lines`; as a
  file: `log_file`) and what of the report it needs (`report_view`). `job_actions` has its buttons.
- A kernel: `task_page`, with `failures` and its `schedule`; `source_page`.
"""

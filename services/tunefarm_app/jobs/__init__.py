"""People's commands for jobs: submit, change, pause, retry, cancel."""

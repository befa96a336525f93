"""What people ask of jobs: submit, change, pause, retry, cancel."""

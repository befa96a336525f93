"""The dashboard's pages of jobs and their tasks."""

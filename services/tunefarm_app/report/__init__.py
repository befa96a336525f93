"""The report of a finished job: its schema (`document`), its contents from the database (`assemble`), its page (`page`)."""

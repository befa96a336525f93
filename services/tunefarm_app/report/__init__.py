"""The report of a finished job: one document (`document`), put together of what is on record (`assemble`), and its page (`page`)."""

"""Models: uploads, submission, deletion, the sweep of the store."""

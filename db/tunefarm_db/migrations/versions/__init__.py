"""The revisions, in order of their dates."""

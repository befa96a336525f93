"""Import a stranger's file as a checked model, and extract its tasks."""

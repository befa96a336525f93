"""From a stranger's file to a checked model and its tasks."""

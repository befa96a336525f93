"""Jobs, their steps, tasks, trials and events."""

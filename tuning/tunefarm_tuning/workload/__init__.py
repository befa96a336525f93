"""Models, their workloads and tuning tasks, and the precision of their weights."""

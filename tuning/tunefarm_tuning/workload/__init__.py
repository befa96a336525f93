"""What is tuned: models, their workloads and tasks, the precision of their weights."""

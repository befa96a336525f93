"""The search: rounds of candidates over a model's tasks until the budget is spent."""

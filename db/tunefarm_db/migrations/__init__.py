"""The schema's history: one sequence of revisions for both databases. `tunefarm_db.schema` runs it."""

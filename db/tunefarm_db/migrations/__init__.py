"""The schema's history, one line of revisions for both databases. Run it by `tunefarm_db.schema`."""

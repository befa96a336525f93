"""Repositories: one per kind of value. All SQL is here.

A repository works on the connection of a unit of work (`tunefarm_db.unit_of_work`) and lives as long as it does.
It never commits. Errors are those of `tunefarm_tuning.core.errors`.
"""

"""Tuning records: their contents, the history for the compiler, and transfer between tasks.

A `record` is one measured config; a `log` is a file of them, `metaschedule` reads and writes TVM's own files. `selection` says which of
several measurements of a config count. `history` finds the records that a compile uses, and `coverage` says for which tasks; `transfer`
chooses those that a tuner learns from. `findings` is what earlier compiles found out.
"""

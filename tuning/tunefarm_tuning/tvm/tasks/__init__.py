"""The tuning tasks of a network, and alternative algorithms for its kernels.

`extract` finds a network's kernels and keys them (`workload_key`). `alternatives` and `library_alternatives` compute some in another way;
`neighbours` says which are beside each other. `apply_record` gives a kernel the schedule of a record.
"""

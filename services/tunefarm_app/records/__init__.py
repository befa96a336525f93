"""Records of kernels: search, sources and rooflines.

`search` finds records, `importing` takes others' in, `purging` removes a device's. Of a job's kernels, `kernel_sources` gets the source and
`rooflines` says how close they are to the device's peak; `farm_facts` says in a compiler's report where its records are from.
"""

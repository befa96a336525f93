"""Records of kernels: search, sources and rooflines."""

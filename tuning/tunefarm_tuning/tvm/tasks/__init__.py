"""The tuning tasks of a network, and alternative algorithms for its kernels."""

"""TVM's IR and targets: walking, rewriting, intrinsics."""

"""Child processes that import TVM, one entry point a module. `tunefarm_tuning.process` starts them."""

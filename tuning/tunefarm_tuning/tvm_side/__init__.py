"""The modules that import tvm. They run in child processes only: what they read is a stranger's model."""

"""The modules that import tvm. They run in child processes only: what they read is a stranger's model."""

from __future__ import annotations

from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime

preload_cuda_runtime()  # before any of them imports it

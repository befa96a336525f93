"""The modules that import tvm. They run only in child processes, because they read strangers' models."""

from __future__ import annotations

from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime

preload_cuda_runtime()  # before any of them imports it

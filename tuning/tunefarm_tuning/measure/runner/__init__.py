"""Runners: from a kernel to a timing."""

from __future__ import annotations

from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.measure.runner.rpc import RpcRunner

__all__ = ["LocalRunner", "RpcRunner"]

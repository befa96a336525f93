"""Runners: from a kernel to a timing.

`local` times on this machine and `rpc` on a device, both by `timing` (the parameters and the answer of their children); `replay` answers
from records, or from a `landscape`.

To add a runner, write a class that implements `Runner` in a module of its own, list it in `RUNNERS`, and let a subclass of
`tunefarm_tuning.testing.runner_contract.RunnerContract` test it in tests/contract/tuning/test_runners.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_tuning.measure.interfaces import Runner
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.measure.runner.rpc import RpcRunner

__all__ = ["RUNNERS", "LocalRunner", "ReplayRunner", "RpcRunner"]

RUNNERS: Mapping[str, type[Runner]] = {
    "local": LocalRunner,  # this machine, in a child process
    "rpc": RpcRunner,  # a device behind a TVM tracker
    "replay": ReplayRunner,  # no device: answers from records, or from a function of the config
}
"""All runners by name."""

"""Measure what RPC adds to a trial: one kernel timed by a local runner, and through a tracker and a server.

    python -m benchmarks.scale.rpc_cost [--runs 60]

Tracker, server and runner are on this machine, so no network is in it: a session, the upload of the kernel and the
calls. Kernels are measured in rounds of eight, once with a session each and once under a lease, where they share one.
The runs alternate, and the medians are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from statistics import median

import numpy as np

from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, Runner, TimingOption
from tunefarm_tuning.measure.runner import LocalRunner, RpcRunner
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.workloads import sample_task

ROUND = 8
TIMING = TimingOption(repeat=3, number=1, min_repeat_ms=1, timeout_sec=10.0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args(arguments)
    local_ms, each_ms, shared_ms = measure(options.runs)
    print("| rounds | sessions | local (ms) | over RPC (ms) | RPC adds (ms) |")
    print("|---:|---|---:|---:|---:|")
    for sessions, rpc_ms in (("one per kernel", each_ms), ("one per round", shared_ms)):
        print(f"| {options.runs} | {sessions} | {local_ms:.2f} | {rpc_ms:.2f} | {rpc_ms - local_ms:.2f} |")
    return 0


def measure(runs: int) -> tuple[float, float, float]:
    """Return the median milliseconds per kernel of measuring a small one here, over RPC, and over RPC under a lease."""
    task = sample_task("matmul", n=32)
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, LocalBuilder(workers=1) as builder:
        (config,) = builder.config_space(task).sample(np.random.default_rng(0), 1)
        (built,) = builder.build([BuildInput(task=task, config=config)])
        if built.artifact_path is None:
            raise RuntimeError(f"the kernel was not built: {built.failure}")
        kernel = MeasureInput(task=task, artifact_path=built.artifact_path)
        server = [
            *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
            *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", folder),
        ]
        with (
            local_rpc(server_command=server) as farm,
            RpcRunner(farm.device, TIMING) as rpc,
            LocalRunner(TIMING, threads=1) as local,
        ):
            for runner in (local, rpc):  # their children start
                _run_ms(runner, kernel)
            times = [
                (_run_ms(local, kernel), _run_ms(rpc, kernel), _run_under_lease_ms(rpc, kernel))
                for _ in range(runs)
            ]
    local_ms, each_ms, shared_ms = (median(of_one) for of_one in zip(*times, strict=True))
    return local_ms, each_ms, shared_ms


def _run_under_lease_ms(runner: RpcRunner, kernel: MeasureInput) -> float:
    runner.use_lease(1)
    took_ms = _run_ms(runner, kernel)
    runner.use_lease(None)
    return took_ms


def _run_ms(runner: Runner, kernel: MeasureInput) -> float:
    began = time.perf_counter()
    results = runner.run([kernel] * ROUND)
    runner.release()
    took_ms = (time.perf_counter() - began) * 1000 / ROUND
    for result in results:
        if result.failure is not None:
            raise RuntimeError(f"the kernel did not run: {result.failure}")
    return took_ms


if __name__ == "__main__":
    sys.exit(main())

"""Measure what the farm's way to a device adds to a trial, beside the same kernel timed here and by TVM's RPC alone.

    python -m benchmarks.scale.rpc_cost [--runs 60]

All ends are on this machine, so no network is in it: sessions, the upload of the kernel and the calls. Kernels are measured in
rounds of eight. By TVM's RPC alone, its own tracker and server serve a session per kernel, as in TVM's own runner, and one per round,
which a client of one's own could have. The farm's way leads through gateway, tickets, relay and the sandbox of a measuring child, with a session per
round. The ways alternate, and their medians are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from benchmarks.scale.gateway import device_behind_gateway
from tvm import rpc

from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, Runner, TimingOption
from tunefarm_tuning.measure.runner import LocalRunner, RpcRunner
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.device.kernel_times import random_arguments
from tunefarm_tuning.tvm.device.session import DeviceSession
from tunefarm_tuning.workload.task import TensorSpec

ROUND = 8
TIMING = TimingOption(repeat=3, number=1, min_repeat_ms=1, timeout_sec=10.0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args(arguments)
    times = measure(options.runs)
    here_ms = times["timed here"]
    print("| a kernel | ms | more than here |")
    print("|---|---:|---:|")
    for way, took_ms in times.items():
        print(f"| {way} | {took_ms:.2f} | {took_ms - here_ms:.2f} |")
    return 0


def measure(runs: int) -> dict[str, float]:
    """Return the median milliseconds per kernel of each way to measure a small one."""
    task = sample_task("matmul", n=32)
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-"), LocalBuilder(workers=1) as builder:
        (config,) = builder.config_space(task).sample(np.random.default_rng(0), 1)
        built = builder.build([BuildInput(task=task, config=config)] * ROUND)
        kernels = [
            MeasureInput(task=task, artifact_path=each.artifact_path) for each in built if each.artifact_path
        ]
        if len(kernels) < ROUND:
            raise RuntimeError(f"the kernel was not built: {built[0].failure}")
        with (
            local_rpc() as stock,
            device_behind_gateway() as device,
            RpcRunner(device, TIMING) as farm,
            LocalRunner(TIMING, threads=1) as local,
        ):
            address = stock.device.address
            tracker = rpc.connect_tracker("127.0.0.1", address.tracker_port)

            def session() -> Any:
                return tracker.request(address.key)

            ways: dict[str, Callable[[], object]] = {
                "timed here": lambda: _run(local, kernels),
                "by TVM's RPC, a session per kernel": lambda: [
                    _time([kernel], session()) for kernel in kernels
                ],
                "by TVM's RPC, a session per round": lambda: _time(kernels, session()),
                "by the farm's gateway, a session per round": lambda: _run(farm, kernels),
            }
            for run in ways.values():  # children start
                run()
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(runs):
                for way, run in ways.items():
                    began = time.perf_counter()
                    run()
                    times[way].append((time.perf_counter() - began) * 1000 / ROUND)
    return {way: median(of_way) for way, of_way in times.items()}


def _time(kernels: Sequence[MeasureInput], remote: Any) -> None:
    """Time kernels in a session of TVM's, as TVM's own runner does."""
    session = DeviceSession(remote)  # without a relay: TVM's own calls alone
    device = session.device("cpu")
    specs: Sequence[TensorSpec] = kernels[0].task.workload.args
    for kernel in kernels:
        module = session.load(kernel.artifact_path)
        arguments = random_arguments(session, device, specs)
        device.sync()
        evaluator = module.time_evaluator(
            "main",
            device,
            number=TIMING.number,
            repeat=TIMING.repeat,
            min_repeat_ms=int(TIMING.min_repeat_ms),
        )
        assert len(evaluator(*arguments).results) == TIMING.repeat


def _run(runner: Runner, kernels: Sequence[MeasureInput]) -> None:
    """Time kernels as a round does: the next one has another lease, and so another session."""
    results = runner.run(kernels)
    runner.release()
    for result in results:
        if result.failure is not None:
            raise RuntimeError(f"the kernel did not run: {result.failure}")


if __name__ == "__main__":
    sys.exit(main())

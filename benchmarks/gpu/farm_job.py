"""Tune a network with an embedded farm whose device is this machine's GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tunefarm.client import Client
from tunefarm.client.errors import ClientError
from tunefarm.embedded import EmbeddedFarm, FarmOptions
from tunefarm_tuning.measure.gpu.baseline import BUDGET_SEC, TORCH_COMPILE, not_installed

_DEVICE_SEC = 300.0
UP = ("online", "leased")
"""A device's states in which it works."""


class GpuFarm:
    """A farm that starts on first use, and continues with what its folder holds from earlier runs.

    Args:
        home: Its folder.
        target: What its device is.
        tell: Is told what happens.
    """

    def __init__(self, home: Path, tell: Callable[[str], None], *, target: str = "cuda") -> None:
        self._home = home
        self._target = target
        self._tell = tell
        self._stack = ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> GpuFarm:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tune(
        self, network: Path, folder: Path, *, seconds: float | None = None, trials: int | None = None
    ) -> dict[str, Any]:
        """Search within a budget, on top of what earlier searches found, and download the artifact into a folder.

        Args:
            network: The network's file.
            folder: For what is downloaded.
            seconds: How long to search; None for no limit.
            trials: How many configs to try; None for no limit. One of the two is needed.

        Returns:
            ``job`` (its id), ``tune_sec``, ``wall_sec``, ``trials``, ``failures``, ``artifact`` (a path), ``covered`` and ``tasks`` (kernels),
            ``warnings``, and ``baselines``, what its report has of other runtimes on the GPU, as a person reads it.
        """
        client = self.client()
        began = time.monotonic()
        uploaded = client.models.upload(network)
        client.models.wait(uploaded.id)
        job = client.jobs.create(uploaded.id, seconds=seconds, trials=trials, priority="high")
        handle = client.job(job.id)
        done = handle.wait()
        files = handle.download(folder)
        report = handle.report()
        return {
            "job": job.id,
            "tune_sec": seconds,
            "wall_sec": time.monotonic() - began,
            "trials": done.trials,
            "failures": done.failures,
            "artifact": str(files.artifact),
            "covered": report["coverage"]["covered"],
            "tasks": report["coverage"]["tasks"],
            "warnings": list(report["warnings"]),
            "baselines": {
                name: _of_baseline(report["latency"], name) for name in ("onnxruntime", "torch_compile")
            },
        }

    def client(self) -> Client:
        """Return a client of the farm; it starts, and its device joins, if they have not yet."""
        if self._client is not None:
            return self._client
        self._tell("starting a farm with this machine's GPU as its device")
        farm = self._stack.enter_context(EmbeddedFarm(self._home, FarmOptions(target=self._target)))
        farm.wait_ready()
        client = self._stack.enter_context(Client(farm.url, farm.api_key))
        for job in client.jobs.all():
            if not job.is_finished:  # of a run that was cut off: what it measured is kept
                with suppress(ClientError):
                    client.jobs.cancel(job.id)
        self._wait_for_a_device(client)
        self._client = client
        return client

    def _wait_for_a_device(self, client: Client) -> None:
        until = time.monotonic() + _DEVICE_SEC
        while time.monotonic() < until:
            devices = client.devices.list()
            if any(device.state in UP for device in devices):
                return
            time.sleep(1.0)
        states = (
            "; ".join(f"{device.name} is {device.state}, {device.reason}" for device in devices)
            or "no device joined"
        )
        raise TimeoutError(
            f"no GPU was ready within {_DEVICE_SEC:g} s ({states}); logs are in {self._home}/logs"
        )


def others_sec() -> float:
    """Return the time limit for baselines: the device runs in this interpreter, and jobs cannot change that."""
    # ONNX Runtime alone takes seconds.
    return 0.0 if not_installed(TORCH_COMPILE) else BUDGET_SEC


def _of_baseline(latency: Mapping[str, Any], name: str) -> str:
    timing = latency.get(name)
    return (
        f"{1e6 * timing['median_sec']:.0f} µs"
        if timing
        else str(latency.get(f"{name}_missing") or "not timed")
    )

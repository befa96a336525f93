"""`Baseline`: a network in another runtime, in a child process beside it. A baseline never fails a compile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tunefarm_tuning.core.errors import DeviceLostError, TunefarmError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.baselines.runtimes import BaselineKind
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.reference.onnx_runtime import InputSet

MODULE = "tunefarm_tuning.measure.baselines.child"
OPEN_SEC = 120.0
"""Seconds for opening a network: OpenVINO compiles it."""
ANSWER_SEC = 5.0
"""A device's time limit is shorter than the caller's by this much, so that its answer still comes."""


class BaselineFailed(TunefarmError):  # noqa: N818  (a value to its caller)
    """A baseline cannot be timed: the message says why."""

    default_code = "baseline-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFacts(JsonFields):
    """What is known of a baseline, beside its latency.

    Attributes:
        missing: Why it was not timed; empty if it was.
        version: Of the runtime.
        computes: The arithmetic of its products, for people.
        checks: Its outputs against the reference, on the inputs that it was timed on: ``ok`` (within what the artifact's may differ
            by), ``max_abs_error``, ``max_rel_error``, ``mean_rel_error`` and ``message``. Empty if they were not compared.
        took_sec: Seconds that it took of the compile: starting, opening, timing.
    """

    missing: str = ""
    version: str = ""
    computes: str = ""
    checks: Mapping[str, Any] = field(default_factory=dict)
    took_sec: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNetwork:
    """What a baseline runs: a file that it can read, and the inputs and expected outputs.

    Attributes:
        path: The file (see `runtime.NetworkFile`).
        names: Of the inputs, in the order of the arrays.
        outputs: The names of the outputs.
        constants: Values of inputs that the file still has, and the artifact has not.
        input_set: The inputs, and what should come out.
        threads: The number of threads.
    """

    path: Path
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    input_set: InputSet
    threads: int


class BaselineChild(Protocol):
    """Where a baseline's child runs. Concurrency: one caller; `close` from any thread."""

    def call(self, method: str, params: Mapping[str, Any], timeout_sec: float) -> dict[str, Any]:
        """Call a handler of `child`; raise `BaselineFailed` where it gives no answer."""

    def close(self) -> None:
        """End the child."""


class LocalChild:
    """A baseline's child on this machine, which may read the network and the arrays alone."""

    def __init__(self, network: BaselineNetwork, limits: ChildLimits) -> None:
        files = [network.path, network.input_set.inputs, network.input_set.expected]
        files += [network.input_set.widths] if network.input_set.widths is not None else []
        self._child = ChildProcess(MODULE, limits=limits, access=Access(reads=tuple(files)))

    @property
    def pid(self) -> int | None:
        """The id of its process; None before the first call."""
        return self._child.pid

    def call(self, method: str, params: Mapping[str, Any], timeout_sec: float) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = self._child.call(method, params, timeout_sec=timeout_sec)
        except ChildClosed:
            raise
        except (ChildFailed, TunefarmError) as error:
            raise BaselineFailed(f"it failed: {clean(error.message, 200)}") from error
        return reply

    def close(self) -> None:
        self._child.close()


class DeviceChild:
    """A baseline's child on a device, reached through the session of a `DeviceRun`, which ends it."""

    def __init__(self, kind: BaselineKind, runner: DeviceRun) -> None:
        self._kind = kind
        self._runner = runner

    def call(self, method: str, params: Mapping[str, Any], timeout_sec: float) -> dict[str, Any]:
        request = {
            "kind": self._kind.name,
            "method": method,
            "params": dict(params),
            "timeout_sec": max(1.0, timeout_sec - ANSWER_SEC),
        }
        try:
            reply = self._runner.call("baseline", request, timeout_sec=timeout_sec)
        except (ChildClosed, DeviceLostError):
            raise
        except TunefarmError as error:
            raise BaselineFailed(f"it failed on the device: {clean(error.message, 200)}") from error
        if failed := reply.get("failed"):
            raise BaselineFailed(clean(str(failed), 300))
        return reply

    def close(self) -> None:
        """Do nothing: the session's end ends it."""


class Baseline:
    """A network in one runtime, which is timed as ONNX Runtime is (`reference.onnx_runtime.Reference`).

    Concurrency: one caller; `close` from any thread.
    Failure: `BaselineFailed`; from then on `facts.missing` says why, and every call fails at once.

    Attributes:
        kind: The runtime.
        facts: What is known of it.
    """

    def __init__(
        self, kind: BaselineKind, network: BaselineNetwork, child: BaselineChild, *, timeout_sec: float
    ) -> None:
        self.kind = kind
        self.facts = BaselineFacts()
        self._network = network
        self._child = child
        self._timeout_sec = timeout_sec
        self._first_sec: float | None = None

    def open_timed(self) -> float:
        """Open the network and compare its outputs, once; return the seconds of an inference."""
        if self._first_sec is None or self.facts.missing:
            network = self._network
            params = {
                "kind": self.kind.name,
                "path": str(network.path.absolute()),
                "names": list(network.names),
                "inputs": str(network.input_set.inputs.absolute()),
                "constants": dict(network.constants),
                "threads": network.threads,
                "outputs": list(network.outputs),
                "expected": str(network.input_set.expected.absolute()),
                "widths": None
                if network.input_set.widths is None
                else str(network.input_set.widths.absolute()),
                "rounding": network.input_set.rounding,
            }
            opened = self._call("open", params, min(OPEN_SEC, self._timeout_sec))
            if opened["missing"]:
                self._fail(BaselineFailed(clean(str(opened["missing"]), 300)))
            self._first_sec = max(float(opened["first_sec"]), 1e-9)
            self.facts = replace(
                self.facts,
                version=clean(str(opened["version"]), 40),
                computes=clean(str(opened["computes"]), 40),
                checks=opened["checks"],
            )
        return self._first_sec

    def sample(self, number: int) -> Mapping[str, Any]:
        """Return a sample (see `child.sample`) of `number` inferences. Call `open_timed` before."""
        return self._call("sample", {"number": number}, self._timeout_sec)

    def close(self) -> None:
        """End the child; a running call then raises `ChildClosed`."""
        self._child.close()

    def _call(self, method: str, params: Mapping[str, Any], timeout_sec: float) -> dict[str, Any]:
        if self.facts.missing:
            raise BaselineFailed(self.facts.missing)
        began = time.monotonic()
        try:
            return self._child.call(method, params, timeout_sec)
        except BaselineFailed as error:
            self._fail(error)
        finally:
            self.facts = replace(self.facts, took_sec=self.facts.took_sec + time.monotonic() - began)

    def _fail(self, error: BaselineFailed) -> NoReturn:
        self.facts = BaselineFacts(missing=error.message, took_sec=self.facts.took_sec)
        self._child.close()
        raise error

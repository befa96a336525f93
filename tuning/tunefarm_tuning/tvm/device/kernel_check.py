"""Runs a kernel and its untuned form on the same inputs, compares all arguments, and times both in turns.

It works where the kernels run: a device offers `KERNEL_FUNCTIONS` to sessions, so that no array passes between the machines (TVM's
RPC copies some 45 MB/s, and a slow network less). A device that is told to lie can do so here as it could with its arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.measure.kernel_timing import LONG_SEC, time_tuned_and_untuned
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session
from tunefarm_tuning.workload.task import TensorSpec

RUN_UNTUNED = "tunefarm.run_untuned"
COMPARE_KERNEL = "tunefarm.compare_kernel"
"""The names under which a session calls them: JSON in, JSON out, as `KernelCheck`, with ``device``, the kind."""


class KernelCheck:
    """Runs a kernel, then others beside it. It keeps the last kernel that `run_untuned` ran, with its arrays.

    Args:
        session: Where kernels run. Arrays of a remote session pass between the machines.
        kind: ``"cpu"`` or ``"cuda"``.
    """

    def __init__(self, session: DeviceSession, kind: str) -> None:
        self._session = session
        self._kind = kind
        self._untuned_path = ""
        self._untuned: Any = None
        self._inputs: list[NDArray[Any]] = []
        self._packed: list[NDArray[Any]] = []
        self._expected: list[NDArray[Any]] = []
        """The arguments after a call; those that are packed as they were before packing."""
        self._untuned_sec = 0.0

    def run_untuned(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run the kernel that others are compared with.

        ``path``, ``args`` (specs), ``seed``, ``kind`` (of inputs), ``calls`` (how many are timed; by default one) -> ``call_sec``, of the
        first; ``calls_sec``, of each: one alone if it takes long.
        """
        self._untuned_path, self._untuned = "", None
        specs = [TensorSpec.from_json(spec) for spec in params["args"]]
        inputs = random_inputs(specs, seed=params["seed"], kind=InputKind(params["kind"]))
        library = self._session.load(params["path"])
        packed = self._pack(library, inputs)
        after, calls_sec = self._run(library, packed, params.get("calls", 1))
        self._untuned_sec = calls_sec[0]
        self._expected = [
            output if is_ is was else was for is_, was, output in zip(packed, inputs, after, strict=True)
        ]
        self._inputs, self._packed = inputs, packed
        self._untuned_path, self._untuned = params["path"], library
        return {"call_sec": self._untuned_sec, "calls_sec": calls_sec}

    def compare_kernel(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Compare a kernel with the one that was just run.

        ``path``, ``untuned`` (path of that one), ``time``, ``rounding`` -> ``comparisons`` of all arguments; ``tuned_sec``,
        ``untuned_sec``: samples, empty where not timed.

        Every argument is compared, inputs too: a kernel that changes its inputs is wrong.

        Raises:
            InvariantError: If `run_untuned` did not run that kernel last.
        """
        if self._untuned is None or self._untuned_path != params["untuned"]:
            raise InvariantError("the untuned kernel has not been run")
        untuned = self._untuned
        tuned = self._session.load(params["path"])
        packed = self._pack(tuned, self._inputs)
        after, (tuned_sec,) = self._run(tuned, packed, 1)
        # Packed inputs have to be unchanged.
        expected = [
            is_ if is_ is not was else wanted
            for is_, was, wanted in zip(packed, self._inputs, self._expected, strict=True)
        ]
        names = [f"arg{number}" for number in range(len(after))]
        comparisons = compare_outputs(names, after, expected, rounding=params["rounding"])
        tuned_samples: list[float] = []
        untuned_samples: list[float] = []
        if params["time"] and all(comparison.ok for comparison in comparisons):
            args, packed_args = (
                self._session.to_device(arrays, self._kind) for arrays in (self._packed, packed)
            )
            with span("time a kernel and its untuned form", SpanKind.TIMING):
                tuned_samples, untuned_samples = time_tuned_and_untuned(
                    lambda number: self._call_sec(tuned, packed_args, number), tuned_sec,
                    lambda number: self._call_sec(untuned, args, number), self._untuned_sec,
                )  # fmt: skip
        return {
            "comparisons": [comparison.to_json() for comparison in comparisons],
            "tuned_sec": tuned_samples,
            "untuned_sec": untuned_samples,
        }

    def _pack(self, library: Any, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Pack the arguments that a kernel takes packed, with the library's function for each."""
        packed = list(arrays)
        for number, array in enumerate(arrays):
            try:
                # a library on another machine cannot list its functions
                packs = library[f"pack_{number}"]
            except AttributeError:
                continue
            stored, result = self._session.to_device([array, array], self._kind)
            packs(stored, result)
            packed[number] = result.numpy()
        return packed

    @span("run a kernel", SpanKind.RUN)
    def _run(
        self, library: Any, arrays: Sequence[NDArray[Any]], calls: int
    ) -> tuple[list[NDArray[Any]], list[float]]:
        """Return the arguments after two calls, and the seconds of the second; those of further calls, unless one takes long."""
        args = self._session.to_device(arrays, self._kind)
        seconds = [self._call_sec(library, args, 1)]
        after = [tensor.numpy() for tensor in args]
        while len(seconds) < calls and seconds[0] <= LONG_SEC:
            seconds.append(self._call_sec(library, args, 1))
        return after, seconds

    def _call_sec(self, library: Any, args: Sequence[Any], number: int) -> float:
        timer = library.time_evaluator("main", self._session.device(self._kind), number=number, repeat=1)
        return float(timer(*args).results[0])


_check: tuple[str, KernelCheck] | None = None
"""The kind, and the check of this process, which serves one session."""


def _offered(method: Callable[[KernelCheck, dict[str, Any]], dict[str, Any]]) -> Callable[[str], str]:
    def call(request: str) -> str:
        global _check
        params = json.loads(str(request))
        if _check is None or _check[0] != params["device"]:
            _check = params["device"], KernelCheck(local_session(), params["device"])
        files = {name: str(Path(params[name]).absolute()) for name in ("path", "untuned") if name in params}
        return json.dumps(method(_check[1], {**params, **files}))

    return call


KERNEL_FUNCTIONS = {
    RUN_UNTUNED: _offered(KernelCheck.run_untuned),
    COMPARE_KERNEL: _offered(KernelCheck.compare_kernel),
}
"""What every device offers, by name. Files are those that the session uploaded."""

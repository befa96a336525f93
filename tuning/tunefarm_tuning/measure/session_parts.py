"""Runs the parts of a network that are ONNX Runtime's, for the networks that a session with a device runs.

A device registers `SessionParts.control` under the name `CONTROL`, and its networks call `artifact.part_calls.FUNCTION`. Parts run in
ONNX Runtime where that is installed. They can also be replayed: a part then returns what it returned in the reference, and what it
is given is compared with what the reference gave it. So every kernel is checked and timed even where ONNX Runtime is missing, and
a difference that is within the tolerance cannot grow in a part that sorts or selects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_tuning.artifact.container import ArtifactError
from tunefarm_tuning.artifact.onnxruntime_parts import OnnxRuntimeParts
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.reference.comparison import Comparison, compare_outputs
from tunefarm_tuning.reference.widths import Width, load_widths

CONTROL = "tunefarm.parts"
"""The function's name on a device. It takes and returns JSON text."""


@dataclass(slots=True)
class _Replay:
    """What each part was given and returned in the reference; the comparisons with what it is given now."""

    inputs: list[list[NDArray[Any]]]
    outputs: list[list[NDArray[Any]]]
    widths: list[list[Width | None] | None]
    rounding: str | None
    comparisons: list[Comparison] = field(default_factory=list)


class SessionParts:
    """The parts of the networks of a session. Concurrency: one caller."""

    def __init__(self) -> None:
        self._real: OnnxRuntimeParts | None = None
        self._replay: _Replay | None = None
        self._runs: list[int] = []
        self._seconds: list[float] = []

    def open(self, models: Sequence[Path | str], threads: int) -> str:
        """Load parts; return why they cannot run here, empty if they can."""
        self._real = self._replay = None
        self._runs, self._seconds = [0] * len(models), [0.0] * len(models)
        try:
            self._real = OnnxRuntimeParts([Path(model).read_bytes() for model in models], threads=threads)
        except ArtifactError as error:
            return error.message
        return ""

    def replay(self, recorded: Sequence[Mapping[str, str]], rounding: str | None) -> None:
        """Let parts return recorded results from now on, and compare what they are given; none recorded: run them again.

        Args:
            recorded: Of each part, the files of what it was given (``inputs``) and returned (``outputs``), and, if there is one, of
                how far what it is given may be from that (``widths``).
            rounding: As for `compare_arrays`; None compares nothing, which takes no time.
        """
        self._replay = None
        if recorded:
            self._replay = _Replay(
                inputs=[load_arrays(files["inputs"]) for files in recorded],
                outputs=[load_arrays(files["outputs"]) for files in recorded],
                widths=[load_widths(files.get("widths")) for files in recorded],
                rounding=rounding,
            )

    def run(self, number: int, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the results of a part."""
        if self._replay is not None:
            return self._replayed(self._replay, number, inputs)
        if self._real is None:
            raise InvariantError("no parts are open")
        before = self._real.seconds[number]
        outputs = self._real.run(number, inputs)
        self._runs[number] += 1
        self._seconds[number] += self._real.seconds[number] - before
        return outputs

    def comparisons(self) -> list[Comparison]:
        """Return the comparisons since the last `replay`."""
        return [] if self._replay is None else self._replay.comparisons

    def taken_sec(self) -> list[float]:
        """Return the mean seconds of a run of each part since the last call."""
        mean = [seconds / max(1, runs) for seconds, runs in zip(self._seconds, self._runs, strict=True)]
        self._runs, self._seconds = [0] * len(mean), [0.0] * len(mean)
        return mean

    def control(self, request: str) -> str:
        """Do what a session on another machine asks for; request and answer are JSON text."""
        params = json.loads(request)
        match params["do"]:
            case "open":
                return json.dumps({"missing": self.open(params["models"], params["threads"])})
            case "replay":
                self.replay(params["recorded"], params["rounding"])
                return "{}"
            case "comparisons":
                return json.dumps([comparison.to_json() for comparison in self.comparisons()])
            case "taken":
                return json.dumps(self.taken_sec())
        raise InvariantError(f"parts cannot do {params['do']!r}")

    @staticmethod
    def _replayed(replay: _Replay, number: int, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        if replay.rounding is not None:
            names = [
                f"input {position + 1} of ONNX Runtime's part {number + 1}" for position in range(len(inputs))
            ]
            replay.comparisons += compare_outputs(
                names, inputs, replay.inputs[number], rounding=replay.rounding, widths=replay.widths[number]
            )
        return replay.outputs[number]

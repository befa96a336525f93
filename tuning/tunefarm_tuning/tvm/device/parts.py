"""The parts of a network that ONNX Runtime runs, where a session's networks run: in this process, or on another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.onnxruntime_parts import OnnxRuntimeParts
from tunefarm_tuning.artifact.part_calls import register, running
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.session_parts import CONTROL, SessionParts
from tunefarm_tuning.reference.comparison import Comparison, compare_outputs
from tunefarm_tuning.tvm.device.session import DeviceSession

Recorded = Sequence[Mapping[str, str]]
"""As for `SessionParts.replay`."""


class DeviceParts:
    """The parts of a network, on a session's device.

    Attributes:
        models: Their ONNX models: files of this machine.
        missing: Why ONNX Runtime cannot run them there; empty if it can.
        random: Numbers of the parts whose results are random, as far as `compare_parts` has found out.

    Raises:
        InvalidInputError: If the device's agent knows nothing of parts (code agent-too-old).
    """

    def __init__(self, session: DeviceSession, models: Sequence[str], threads: int) -> None:
        self.models = tuple(models)
        self.random: set[int] = set()
        self._session = session
        self._uploaded: dict[str, str] = {}
        self._here = SessionParts()
        self._is_here = not session.host
        missing_here = self._here.open(models, threads)
        if self._is_here:
            register()
            self.missing = missing_here
            return
        answer = self._ask(do="open", models=[self._upload(model) for model in models], threads=threads)
        self.missing = str(answer["missing"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the networks that run in this block call the parts."""
        with running(self._here if self._is_here else None):
            yield

    def replay(self, recorded: Recorded, rounding: str | None) -> None:
        """See `SessionParts.replay`."""
        if self._is_here:
            self._here.replay(recorded, rounding)
            return
        uploaded = [{end: self._upload(file) for end, file in files.items()} for files in recorded]
        self._ask(do="replay", recorded=uploaded, rounding=rounding)

    def comparisons(self) -> list[Comparison]:
        """Return the comparisons of what the parts were given since the last `replay`."""
        if self._is_here:
            return self._here.comparisons()
        return [Comparison.from_json(comparison) for comparison in self._ask(do="comparisons")]

    def taken_sec(self) -> list[float]:
        """Return the mean seconds of a run of each part since the last call."""
        return self._here.taken_sec() if self._is_here else [float(sec) for sec in self._ask(do="taken")]

    def compare_parts(self, recorded: Recorded, rounding: str) -> list[Comparison]:
        """Run each part on this machine on what the reference gave it, and compare what it returns, unless that is random.

        What ONNX Runtime makes of a part's graph moves roundings. A part that differs is run without that, as in the reference.
        """
        self._here.replay([], None)
        comparisons: list[Comparison] = []
        for number, files in enumerate(recorded):
            inputs = load_arrays(files["inputs"])
            outputs = self._here.run(number, inputs)
            names = [
                f"output {position + 1} of ONNX Runtime's part {number + 1}"
                for position in range(len(outputs))
            ]
            compared = compare_outputs(names, outputs, load_arrays(files["outputs"]), rounding=rounding)
            if not all(comparison.ok for comparison in compared):
                again = compare_outputs(names, self._here.run(number, inputs), outputs, rounding=rounding)
                if not all(comparison.ok for comparison in again):
                    self.random.add(number)
                    continue
                model = Path(self.models[number]).read_bytes()
                plain = OnnxRuntimeParts([model], threads=1, optimised=False).run(0, inputs)
                compared = compare_outputs(names, plain, load_arrays(files["outputs"]), rounding=rounding)
            comparisons += compared
        return comparisons

    def _ask(self, **request: Any) -> Any:
        try:
            control = self._session.function(CONTROL)
        except AttributeError as error:
            raise InvalidInputError(
                "the device's agent is older than this farm and cannot run parts of a network in ONNX Runtime: update it",
                code="agent-too-old",
            ) from error
        return json.loads(str(control(json.dumps(request))))

    def _upload(self, file: str) -> str:
        if file not in self._uploaded:
            self._uploaded[file] = self._session.upload(file)
        return self._uploaded[file]

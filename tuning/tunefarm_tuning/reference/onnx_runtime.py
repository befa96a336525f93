"""`Reference`: has `frontend.onnx.reference_child` compute the expected outputs of a network, and time it, in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError, TunefarmError
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.process.model_child import model_error
from tunefarm_tuning.reference.comparison import BFLOAT16, STEPS
from tunefarm_tuning.reference.kept_outputs import KeptOutputs
from tunefarm_tuning.reference.random_inputs import InputKind, kinds_for
from tunefarm_tuning.reference.samples import SampleFeed
from tunefarm_tuning.workload.model import Model

_MODULE = "tunefarm_tuning.frontend.onnx.reference_child"
_BUDGET_SHARE = 0.25
"""Share of a call's time limit for running the model in other ways than the plain one."""
_LONGEST_BUDGET_SEC, _SHORT_BUDGET_SEC = 60.0, 10.0
"""The most that it comes to, and the most if the model need not be run thoroughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPart:
    """What a part of the network was given and returned in the reference, in files.

    Attributes:
        widths: The file of how far what it is given may be from that; None takes fixed shares.
    """

    inputs: Path
    outputs: Path
    widths: Path | None = None

    def files(self) -> dict[str, Path]:
        """Return its files by name."""
        files = {"inputs": self.inputs, "outputs": self.outputs}
        return files if self.widths is None else {**files, "widths": self.widths}

    def to_json(self) -> dict[str, str]:
        return {name: str(path) for name, path in self.files().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """Inputs and the expected outputs, in files.

    Attributes:
        kind: How random inputs were drawn; None for a user's own.
        seed: Seed of random inputs.
        sample: The user's own inputs; None for random ones.
        inputs: The file of the inputs, in the model's order.
        expected: The file of the expected outputs, in the model's order.
        rounding: The rounding that widens the tolerance of the comparison; see `comparison.compare_arrays`.
        widths: The file of how far outputs may be from the expected ones (`reference.widths`); None takes fixed shares.
        entry: The library's function that takes inputs of these shapes.
        parts: Of each part that ONNX Runtime runs in the artifact, what the reference gave it and what it returned.
    """

    kind: InputKind | None = None
    seed: int = 0
    sample: SampleFeed | None = None
    inputs: Path
    expected: Path
    rounding: str = "float32"
    widths: Path | None = None
    entry: str = "main"
    parts: tuple[RecordedPart, ...] = ()

    def files(self) -> dict[str, Path]:
        """Return its files by their names in this set; that of widths may be missing."""
        files = {"inputs": self.inputs, "expected": self.expected}
        files |= {} if self.widths is None else {"widths": self.widths}
        for number, part in enumerate(self.parts):
            files |= {f"part-{number}-{name}": path for name, path in part.files().items()}
        return files

    @property
    def folders(self) -> set[Path]:
        """Where its files are."""
        return {self.inputs.parent, self.expected.parent}

    def with_rounding(self, rounding: str) -> InputSet:
        """Return the set with another rounding, unless the model's own rounding (`STEPS`, `BFLOAT16`) is coarser."""
        return self if self.rounding in (STEPS, BFLOAT16) else replace(self, rounding=rounding)


class Reference:
    """Runs one model in ONNX Runtime, in a child process.

    Concurrency: one caller; `close` from any thread.
    Failure: an `InvalidModelError` with code reference-failed, reference-crashed, reference-timeout or reference-memory.

    Attributes:
        integers: How integer inputs were drawn: ``"random"`` (as `random_inputs`), or all of them ``"zero"`` or ``"one"``.
        random_fails: Why the model was compared on samples alone: it does not run on random inputs. Empty if it does.
        bfloat16: Whether the model computes in bfloat16: ONNX Runtime then runs equivalents of it (`frontend.onnx.bfloat16`).
        runs: In which ways the model was run (`frontend.onnx.reference.runs.Runs`); None if outputs have no widths.

    Args:
        model: The model.
        folder: Folder for inputs and outputs.
        threads: The number of threads that it runs on.
        memory_bytes: Address space of the child.
        timeout_sec: Wall-clock limit of each call.
        kept: Outputs of earlier compiles, which are not computed again; None keeps none.
    """

    def __init__(
        self,
        model: Model,
        folder: Path,
        *,
        threads: int,
        memory_bytes: int,
        timeout_sec: float,
        kept: KeptOutputs | None = None,
    ) -> None:
        self._model = model
        self._folder = folder
        self._threads = threads
        self._timeout_sec = timeout_sec
        self._kept = kept
        self._child = ChildProcess(
            _MODULE,
            limits=ChildLimits(memory_bytes=memory_bytes),
            access=Access(reads=(model.path,), writes=(folder,)),
            env={"OMP_NUM_THREADS": "1"},
        )
        self.integers = "random"
        self.bfloat16 = False
        self.random_fails = ""
        self.runs: Mapping[str, Any] | None = None

    def make(
        self,
        seed: int,
        *,
        rounding: str = "float32",
        feeds: Sequence[SampleFeed] = (),
        thorough: bool = True,
        narrow: str | None = None,
    ) -> list[InputSet]:
        """Run the model on the user's samples, then on one set of random inputs of each kind that fits it.

        It is run in all ways that tell how far its outputs move. With samples, random inputs that it cannot run on are left
        out (`random_fails`).

        Args:
            seed: Seed of the first set.
            rounding: `InputSet.rounding`; if the model itself rounds, it is `STEPS` or `BFLOAT16` instead.
            feeds: The user's samples.
            thorough: Whether to take all kinds of random inputs, not the first alone, and all the time that there is for other
                ways; and to find out how well the comparison notices faults.
            narrow: The dtype that the compile rounds the factors of products to; None if it does not.

        Raises:
            InvalidModelError: If ONNX Runtime cannot run the model.
            InvalidInputError: ``samples-failed`` if it cannot run it on a sample set.
        """
        kinds = kinds_for(self._model.inputs)[: None if thorough else 1]
        sets = [
            *(self._set(f"sample-{feed.file}-{feed.index}", sample=feed, inputs=feed.path) for feed in feeds),
            *(
                self._set(
                    str(number), kind=kind, seed=seed + number, inputs=self._folder / f"inputs-{number}.npz"
                )
                for number, kind in enumerate(kinds)
            ),
        ]
        self._child.allow(*(feed.path for feed in feeds))
        reply = self._made(
            sets,
            {
                **self._common(),
                "budget_sec": self._budget_sec if thorough else min(_SHORT_BUDGET_SEC, self._budget_sec),
                "probes": thorough,
                "narrow": narrow,
                "parts": [
                    {
                        "inputs": [spec.name for spec in part.inputs],
                        "outputs": [spec.name for spec in part.outputs],
                    }
                    for part in self._model.parts
                ],
                "sets": [_set_params(input_set) for input_set in sets],
            },
        )
        expected_names = [spec.name for spec in self._model.outputs]
        if list(reply["outputs"]) != expected_names:
            raise InvalidModelError(
                "ONNX Runtime and TVM do not agree on the model's outputs", code="reference-failed"
            )
        self.integers = str(reply["integers"])
        self.bfloat16 = bool(reply["bfloat16"])
        self.random_fails = str(reply["random_fails"])
        self.runs = reply["runs"]
        # A step of a quantised network, or of bfloat16, is far wider than any other order of sums.
        rounding = STEPS if reply["rounds"] else BFLOAT16 if self.bfloat16 else rounding
        if self.runs is None:
            sets = [
                replace(
                    input_set,
                    widths=None,
                    parts=tuple(replace(part, widths=None) for part in input_set.parts),
                )
                for input_set in sets
            ]
        return [replace(input_set, rounding=rounding) for input_set in sets[: reply["made"]]]

    def _made(self, sets: Sequence[InputSet], params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the child's reply once the sets' files are written; of sets without samples, it may be that of an earlier compile."""
        kept = None if any(input_set.sample for input_set in sets) else self._kept
        if kept is None:
            return self._call("make_reference", params)  # type: ignore[no-any-return]
        files = {
            f"{number}-{name}": path
            for number, input_set in enumerate(sets)
            for name, path in input_set.files().items()
        }
        facts = {
            "sets": [[input_set.kind, input_set.seed] for input_set in sets],
            **{name: value for name, value in params.items() if name not in ("path", "sets")},
        }
        reply = kept.restore(self._model.sha256, facts, files)
        if reply is None:
            reply = self._call("make_reference", params)
            # What a busy machine had no time for is made by a later compile.
            if reply["made"] == len(sets) and not reply["hurried"]:
                kept.keep(self._model.sha256, facts, files, reply)
        return reply

    def _set(self, stem: str, **inputs: Any) -> InputSet:
        """Return a set with these inputs, whose files are to be written under names that end with a stem."""
        return InputSet(
            expected=self._folder / f"expected-{stem}.npz",
            widths=self._folder / f"widths-{stem}.npz",
            parts=self._recorded(stem),
            **inputs,
        )

    def _recorded(self, stem: str) -> tuple[RecordedPart, ...]:
        """Return the files of what each part for ONNX Runtime is given and returns on a set of inputs."""
        return tuple(
            RecordedPart(
                inputs=self._folder / f"part-inputs-{stem}-{part}.npz",
                outputs=self._folder / f"part-outputs-{stem}-{part}.npz",
                widths=self._folder / f"part-widths-{stem}-{part}.npz",
            )
            for part in range(len(self._model.parts))
        )

    def make_segments(self, input_set: InputSet, within: str | None, name: str) -> dict[str, Any]:
        """Cut the model into segments that are fed with the reference's values on a set of inputs.

        Args:
            input_set: The set.
            within: The tensor that ends the segment to cut further; None for the whole model.
            name: Begins the names of the files that are written.

        Returns:
            The child's reply (see `reference_child.make_segments`), and ``files``: paths of ``model``, ``inputs``, ``outputs`` and ``widths``.

        Raises:
            InvalidModelError: If ONNX Runtime cannot run the cut model.
        """
        files = {
            key: str(self._folder / f"{name}-{key}.{'onnx' if key == 'model' else 'npz'}")
            for key in ("model", "inputs", "outputs", "widths")
        }
        self._allow(input_set.inputs)
        reply: dict[str, Any] = self._call(
            "make_segments",
            {
                **self._common(),
                "budget_sec": self._budget_sec,
                "feeds": str(input_set.inputs),
                "within": within,
                "to": files,
            },
        )
        return {**reply, "files": files}

    def write_network(self) -> Path | None:
        """Write the model as `open_timed` runs it, for other runtimes: ONNX, its inputs bound. Return the file.

        None if the model's own file is TFLite, which they read themselves.

        Raises:
            InvalidModelError: If it cannot be written (too-large), or as any call.
        """
        path = self._folder / "network.onnx"
        written: bool = self._call("write_network", {**self._common(), "to": str(path)})
        return path if written else None

    def prepare_timed(self, inputs: Path) -> None:
        """Load the model with ONNX Runtime's best settings, if the child runs; where that fails, `open_timed` says why."""
        if not self._child.alive:
            return
        self._allow(inputs)
        try:
            self._call("prepare_timed", {**self._common(), "feeds": str(inputs)})
        except ChildClosed:
            raise
        except TunefarmError:
            return

    def open_timed(self, inputs: Path) -> float:
        """Load the model with ONNX Runtime's best settings; return the seconds of a first inference."""
        self._allow(inputs)
        return float(self._call("open_timed", {**self._common(), "feeds": str(inputs)})["first_sec"])

    def sample(self, number: int) -> Mapping[str, Any]:
        """Return a sample (see `reference_child.sample`) of `number` inferences. Call `open_timed` before."""
        sample: Mapping[str, Any] = self._call("sample", {"number": number})
        return sample

    def close(self) -> None:
        """End the child; a running call then raises `ChildClosed`."""
        self._child.close()

    def _allow(self, inputs: Path) -> None:
        """Let the child read inputs; a user's samples, which another reference to the model may have been made with, lie elsewhere."""
        if not inputs.is_relative_to(self._folder):
            self._child.allow(inputs)

    @property
    def _budget_sec(self) -> float:
        return min(_LONGEST_BUDGET_SEC, _BUDGET_SHARE * self._timeout_sec)

    def _common(self) -> dict[str, Any]:
        return {
            "path": str(self._model.path.absolute()),
            "binding": self._model.binding.to_json(),
            "threads": self._threads,
        }

    def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        try:
            return self._child.call(method, params, timeout_sec=self._timeout_sec)
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise model_error("reference", "running the model in ONNX Runtime", error) from error


def _set_params(input_set: InputSet) -> dict[str, Any]:
    """Return what the child's ``make_reference`` takes of a set."""
    return {
        "kind": None if input_set.kind is None else input_set.kind.value,
        "seed": input_set.seed if input_set.sample is None else input_set.sample.index,
        "inputs": str(input_set.inputs),
        "outputs": str(input_set.expected),
        "widths": str(input_set.widths),
        "parts": [part.to_json() for part in input_set.parts],
    }

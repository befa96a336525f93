"""`References`: the `Reference` of a compile (`reference.onnx_runtime`) in each set of shapes, one child process at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.reference.kept_outputs import KeptOutputs
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.samples import SampleFeed
from tunefarm_tuning.workload.model import Model


class References:
    """Starts ONNX Runtime for one set of shapes after the other: at most one child process is alive.

    Concurrency: one caller; the request's cancellation ends the child from another thread.

    Args:
        request: The compile.
        make_reference: Makes a `Reference`.
        threads: The number of threads that it runs on.
    """

    def __init__(
        self, request: CompileRequest, make_reference: Callable[..., Reference], threads: int
    ) -> None:
        self._request = request
        self._make_reference = make_reference
        self._threads = threads
        self._stack = ExitStack()
        self._number: int | None = None
        self._reference: Reference | None = None

    def of(self, number: int) -> Reference:
        """Return the reference in a set of shapes: its number in `Model.each`. The one before ends."""
        if self._reference is None or number != self._number:
            self._reference = self._open(
                self._request.model.each[number], f"shape-{number}" if number else ""
            )
            self._number = number
        return self._reference

    def of_model(self, model: Model, name: str) -> Reference:
        """Return the reference of a model in shapes that are not among `Model.each`. The one before ends.

        Args:
            model: The model.
            name: Name of the folder for its inputs and outputs.
        """
        self._number = None
        self._reference = self._open(model, name)
        return self._reference

    def make(
        self, number: int, entry: str, feeds: Sequence[SampleFeed] = ()
    ) -> tuple[list[InputSet], Reference]:
        """Return the input sets of a set of shapes, for the function `entry` of the library, and the reference that made them.

        The user's samples in these shapes, `feeds`, come first.
        """
        reference = self.of(number)
        sets = reference.make(self._request.seed, feeds=feeds, narrow=self._request.precision.narrow_factors)
        return [replace(input_set, entry=entry) for input_set in sets], reference

    def close(self) -> None:
        """End the child."""
        self._stack.close()
        self._number = self._reference = None

    def _open(self, model: Model, name: str) -> Reference:
        self.close()
        request = self._request
        folder = request.folder / name
        folder.mkdir(exist_ok=True)
        kept = request.history.findings.references
        reference = self._make_reference(
            model,
            folder,
            threads=self._threads,
            memory_bytes=request.limits.memory_bytes,
            timeout_sec=request.limits.model_sec,
            kept=None if kept is None else KeptOutputs(kept),
        )
        self._stack.enter_context(closing(reference))
        self._stack.enter_context(request.cancellation.attach(reference))
        return reference

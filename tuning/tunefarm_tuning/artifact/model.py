"""Loads an artifact as a model that can be called. Needs Python 3.11, apache-tvm and numpy.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

if __package__:
    from tunefarm_tuning.artifact.arrays import (
        ArtifactInputError,
        InputSlot,
        OutputTaker,
        listed,
        numpy_dtype,
    )
    from tunefarm_tuning.artifact.batches import run_in_batches
    from tunefarm_tuning.artifact.container import (
        LIBRARY,
        ArtifactError,
        manifest_in,
        open_zip,
        unpack_library,
    )
    from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime, why_no_gpu
    from tunefarm_tuning.artifact.machine_check import check_gpu_of, check_machine_of, check_versions_of
    from tunefarm_tuning.artifact.threads import KernelThreads, choose_threads
else:  # beside this file, in the zip
    from container import (  # type: ignore[import-not-found,no-redef]
        LIBRARY,
        ArtifactError,
        manifest_in,
        open_zip,
        unpack_library,
    )
    from tunefarm_arrays import (  # type: ignore[import-not-found,no-redef]
        ArtifactInputError,
        InputSlot,
        OutputTaker,
        listed,
        numpy_dtype,
    )
    from tunefarm_batches import run_in_batches  # type: ignore[import-not-found,no-redef]
    from tunefarm_cuda_runtime import (  # type: ignore[import-not-found,no-redef]
        preload_cuda_runtime,
        why_no_gpu,
    )
    from tunefarm_machine_check import (  # type: ignore[import-not-found,no-redef]
        check_gpu_of,
        check_machine_of,
        check_versions_of,
    )
    from tunefarm_threads import (  # type: ignore[import-not-found,no-redef]
        KernelThreads,
        choose_threads,
    )

_TVM_ERRORS = (RuntimeError, OSError, ValueError, TypeError, LookupError, AttributeError)


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, check_versions: bool = True
) -> TunedModel:
    """Load an artifact.

    Args:
        path: The ``.tunefarm`` file.
        threads: The number of threads that kernels run on. By default ``TVM_NUM_THREADS`` if set, else the number that the artifact
            was tuned for, at most the cores that this process may use. A number other than it was tuned for is a
            `ThreadsWarning`.
        check_versions: Whether another version of apache-tvm is an error: its format for compiled models may differ.

    Raises:
        ArtifactError: If the file is damaged, or made for another machine, GPU or version.
    """
    return TunedModel(Path(path), threads=threads, check_versions=check_versions)


class TunedModel:
    """A loaded model.

    Concurrency: any thread may call it, and so may a forked process. If kernels run on one thread, calls run in parallel, each on
        its caller's thread; if on several, one after the other.

    Attributes:
        manifest: The facts about the model: versions, checks, latencies, records.
        inputs: ``{"name", "shape", "dtype"}`` of each input, in order.
        outputs: The same of each output.
        threads: The number of threads that kernels run on.
    """

    def __init__(self, path: Path, *, threads: int | None = None, check_versions: bool = True) -> None:
        with open_zip(path) as archive:
            self.manifest: dict[str, Any] = manifest_in(archive, path)
            self.inputs: list[dict[str, Any]] = self.manifest["inputs"]
            self.outputs: list[dict[str, Any]] = self.manifest["outputs"]
            if check_versions:
                check_versions_of(self.manifest)
            check_machine_of(self.manifest)
            if self.manifest["target"]["kind"] == "cuda":
                preload_cuda_runtime()
            # A new folder, since a library is not read again from a path that it was loaded from. The file can be deleted once
            # it is loaded: the system keeps a mapped file's contents. So nothing is left behind, even after a crash.
            with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
                library = Path(folder) / LIBRARY
                unpack_library(archive, self.manifest, library)
                self.threads = choose_threads(threads, self.manifest)
                self._threads = KernelThreads(self.threads)
                self._library, self._device = _open(library, self.manifest)
        self._names = [spec["name"] for spec in self.inputs]
        self._name_set = set(self._names)
        self._taker = OutputTaker(self.outputs, self._device)
        # Virtual machines that no call uses at the moment; there are as many as there were calls at the same time.
        self._idle = [self._make_machine()]

    def __call__(self, *arrays: ArrayLike, **named: ArrayLike) -> dict[str, NDArray[Any]]:
        """Run the model; inputs by position or by name (``model(**{"input.1": x})``).

        Inputs are numpy arrays, values that numpy can convert, or arrays of a library that supports DLPack. A large array that is
        contiguous and aligned to 64 bytes is not copied; others are. No later call changes the outputs.

        Returns:
            The outputs by name.

        Raises:
            ArtifactInputError: If an input is missing, unknown, or of another shape or dtype.
            ArtifactError: run-failed, if the library fails.
        """
        if not named and len(arrays) == len(self._names):
            return self._run(arrays)
        if len(arrays) > len(self.inputs):
            raise ArtifactInputError(
                f"{len(arrays)} inputs were given, but the model has {listed(self.inputs)}"
            )
        positional = dict(zip(self._names, arrays, strict=False))
        if twice := positional.keys() & named.keys():
            raise ArtifactInputError(f"input {min(twice)!r} was given by position and by name")
        return self.run({**positional, **named})

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Run the model on inputs by name (see `__call__`)."""
        return self._run(self._in_order(inputs))

    def batched(self, data: ArrayLike | Mapping[str, ArrayLike] | Iterable[Any]) -> dict[str, NDArray[Any]]:
        """Run the model over any number of samples, and stack the results.

        Samples lie along the first axis of the model's inputs: a model of batch 8 runs eight samples at once. The last batch is
        padded with copies of its last sample, and the padding is removed from the results. If the samples of a batch influence each
        other, the results of that batch differ.

        Args:
            data: An array ``[N, ...]``; or a mapping of input names to such arrays; or an iterable of samples without the first
                axis. A sample is an array; for a model of several inputs, a tuple in their order or a mapping by name.

        Returns:
            Each output's array ``[N, ...]`` by name.

        Raises:
            ArtifactInputError: If the model's inputs and outputs do not have the same first axis, or the samples do not fit.
        """
        return run_in_batches(self._run, self.inputs, self.outputs, data)

    def time(
        self, *, repeat: int = 10, number: int | None = None, inputs: Mapping[str, ArrayLike] | None = None
    ) -> list[float]:
        """Return seconds per inference, one value per sample, after a warm-up.

        Args:
            repeat: The number of samples.
            number: Inferences per sample; by default as many as take 50 ms, at least one.
            inputs: Arrays by name; by default all elements are one.

        Raises:
            ArtifactInputError: As calling the model does.
            ValueError: If `repeat` or `number` is not positive.
        """
        if repeat < 1 or (number is not None and number < 1):
            raise ValueError("the number of samples and of inferences in each must be at least 1")
        arrays = self._in_order(inputs if inputs is not None else self._ones())
        machine = self._make_machine()
        tensors = [take(array) for take, array in zip(machine.takers, arrays, strict=True)]
        return list(self._invoke(lambda: machine.time(tensors, repeat, number), ()))

    def _run(self, arrays: Sequence[Any]) -> dict[str, NDArray[Any]]:
        try:
            machine = self._idle.pop()
        except IndexError:
            machine = self._make_machine()
        try:
            tensors = [take(array) for take, array in zip(machine.takers, arrays, strict=True)]
            outputs = self._taker.take(self._invoke(machine.main, tensors), tensors)
        finally:
            self._idle.append(machine)
        if outputs is None:
            raise ArtifactError(
                f"{LIBRARY} does not have the {len(self.outputs)} outputs of the manifest",
                code="damaged-artifact",
            )
        return outputs

    def _invoke(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        try:
            return self._threads.call(function, arguments)
        except (
            _TVM_ERRORS
        ) as error:  # the inputs were checked against the manifest, so they are not the cause
            raise ArtifactError(f"{LIBRARY} cannot be run: {_why(error)}", code="run-failed") from error

    def _make_machine(self) -> _Machine:
        try:
            return _Machine(self._library, self.inputs, self._device)
        except _TVM_ERRORS as error:
            raise ArtifactError(
                f"{LIBRARY} cannot be loaded: {_why(error)}", code="damaged-artifact"
            ) from error

    def _ones(self) -> dict[str, NDArray[Any]]:
        import numpy as np

        return {spec["name"]: np.ones(spec["shape"], numpy_dtype(spec["dtype"])) for spec in self.inputs}

    def _in_order(self, inputs: Mapping[str, ArrayLike]) -> list[Any]:
        if inputs.keys() == self._name_set:
            return [inputs[name] for name in self._names]
        if unknown := [name for name in inputs if name not in self._names]:
            raise ArtifactInputError(f"there is no input {unknown[0]!r}; the model has {listed(self.inputs)}")
        for name in self._names:
            if name not in inputs:
                raise ArtifactInputError(f"input {name!r} is missing; the model has {listed(self.inputs)}")
        return [inputs[name] for name in self._names]


class _Machine:
    """TVM's virtual machine and its input buffers. Concurrency: none; one call at a time uses it."""

    def __init__(self, library: Any, inputs: Sequence[Mapping[str, Any]], device: Any) -> None:
        from tvm import relax

        self._vm = relax.VirtualMachine(library, device)
        self._device = device
        self.takers = [InputSlot(spec, device).take for spec in inputs]
        self.main = self._vm["main"]

    def time(self, tensors: Sequence[Any], repeat: int, number: int | None) -> list[float]:
        self.main(*tensors)
        started = time.perf_counter()
        self.main(*tensors)
        self._device.sync()
        first_sec = time.perf_counter() - started
        if number is None:
            number = max(1, min(10_000, int(0.05 / max(first_sec, 1e-6))))
        timer = self._vm.time_evaluator("main", self._device, number=number, repeat=repeat)
        return [float(sample) for sample in timer(*tensors).results]


def _open(library: Path, manifest: Mapping[str, Any]) -> tuple[Any, Any]:
    import tvm

    kind = manifest["target"]["kind"]
    try:
        device = tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
    except _TVM_ERRORS as error:
        raise ArtifactError(
            f"TVM does not know the device {kind!r}: {_why(error)}", code="no-device"
        ) from error
    if not device.exist:
        why = f": {why_no_gpu()}" if kind == "cuda" else ""
        raise ArtifactError(f"the artifact needs a {kind} device; there is none here{why}", code="no-device")
    if kind == "cuda":
        check_gpu_of(manifest, device.compute_version)
    try:
        return tvm.runtime.load_module(str(library)), device
    except _TVM_ERRORS as error:
        raise ArtifactError(f"{LIBRARY} cannot be loaded: {_why(error)}", code="damaged-artifact") from error


def _why(error: Exception) -> str:
    """Return the last line of TVM's message: a C++ stack trace may come before it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]

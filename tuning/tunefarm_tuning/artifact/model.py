"""Loads an artifact as a model that can be called. Needs Python 3.11, apache-tvm and numpy.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError, listed, numpy_dtype
    from tunefarm_tuning.artifact.batches import filled_up, run_in_batches
    from tunefarm_tuning.artifact.container import (
        LIBRARY,
        ArtifactError,
        manifest_in,
        open_zip,
        read_parts,
        unpack_library,
    )
    from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime, why_no_gpu
    from tunefarm_tuning.artifact.entry import TVM_ERRORS, Entry, last_line, load_whole_runtime, turns_on
    from tunefarm_tuning.artifact.machine_check import check_gpu_of, check_machine_of, check_versions_of
    from tunefarm_tuning.artifact.onednn_library import load_kernel_libraries
    from tunefarm_tuning.artifact.onnxruntime_parts import OnnxRuntimeParts
    from tunefarm_tuning.artifact.part_calls import Parts, register, running
    from tunefarm_tuning.artifact.specialisations import ShapeTable
    from tunefarm_tuning.artifact.threads import choose_threads, threads_of
else:  # beside this file, in the zip
    from container import (  # type: ignore[import-not-found,no-redef]
        LIBRARY,
        ArtifactError,
        manifest_in,
        open_zip,
        read_parts,
        unpack_library,
    )
    from tunefarm_arrays import (  # type: ignore[import-not-found,no-redef]
        ArtifactInputError,
        listed,
        numpy_dtype,
    )
    from tunefarm_batches import filled_up, run_in_batches  # type: ignore[import-not-found,no-redef]
    from tunefarm_cuda_runtime import (  # type: ignore[import-not-found,no-redef]
        preload_cuda_runtime,
        why_no_gpu,
    )
    from tunefarm_entry import TVM_ERRORS, Entry, last_line, load_whole_runtime, turns_on  # type: ignore[import-not-found,no-redef]
    from tunefarm_machine_check import (  # type: ignore[import-not-found,no-redef]
        check_gpu_of,
        check_machine_of,
        check_versions_of,
    )
    from tunefarm_onednn_library import load_kernel_libraries  # type: ignore[import-not-found,no-redef]
    from tunefarm_onnxruntime_parts import OnnxRuntimeParts  # type: ignore[import-not-found,no-redef]
    from tunefarm_part_calls import Parts, register, running  # type: ignore[import-not-found,no-redef]
    from tunefarm_specialisations import ShapeTable  # type: ignore[import-not-found,no-redef]
    from tunefarm_threads import choose_threads, threads_of  # type: ignore[import-not-found,no-redef]


_OTHER_SHAPES_KEPT = 8
_VERIFY_KEY = "TUNEFARM_VERIFY_KEY"


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    check_versions: bool = True,
    verify_key: str | os.PathLike[str] | None = None,
) -> TunedModel:
    """Load an artifact.

    Args:
        path: The ``.tunefarm`` file.
        threads: The number of threads that kernels run on. By default ``TVM_NUM_THREADS`` if set, else the number that the artifact
            was tuned for, at most the cores that this process may use. A number other than it was tuned for is a
            `ThreadsWarning`.
        check_versions: Whether another version of apache-tvm is an error: its format for compiled models may differ.
        verify_key: File of public keys. Before anything of the artifact is unpacked, the envelope beside it has to say that one of
            them signed it. By default ``TUNEFARM_VERIFY_KEY``; without that, artifacts are not verified. The loader inside an
            artifact cannot verify the artifact, and refuses to.

    Raises:
        ArtifactError: If the file is damaged, or made for another machine, GPU or version, or is not verified.
    """
    if verify_key is None:
        verify_key = os.environ.get(_VERIFY_KEY) or None
    elif not os.fspath(verify_key):  # what names no file must not load unverified
        raise ArtifactError(
            "verify_key is empty: give a file of public keys, or leave it out", code="bad-verify-key"
        )
    key = None if verify_key is None else Path(verify_key)
    return TunedModel(Path(path), threads=threads, check_versions=check_versions, verify_key=key)


class TunedModel:
    """A loaded model.

    Concurrency: any thread may call it, and so may a forked process. If kernels run on one thread, calls run in parallel, each on
        its caller's thread; if on several, one after the other.

    Attributes:
        manifest: The facts about the model: versions, checks, latencies, records.
        inputs: ``{"name", "shape", "dtype"}`` of each input, in order; of several shapes, those that matter most.
        outputs: The same of each output; a dimension that depends on values is None.
        threads: The number of threads that kernels run on.
        parts: What runs the parts that are ONNX Runtime's; None for a network that is compiled whole.
        shape_table: Which shapes run where; `shapes` lists them.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None = None,
        check_versions: bool = True,
        verify_key: Path | None = None,
    ) -> None:
        with _opened(path, verify_key) as archive:
            self.manifest: dict[str, Any] = manifest_in(archive, path)
            self.inputs: list[dict[str, Any]] = self.manifest["inputs"]
            self.outputs: list[dict[str, Any]] = self.manifest["outputs"]
            if check_versions:
                check_versions_of(self.manifest)
            check_machine_of(self.manifest)
            self.threads = choose_threads(threads, self.manifest)
            models = read_parts(archive, self.manifest)
            # Before anything is unpacked: it may be that ONNX Runtime is not installed.
            self.parts: Parts | None = OnnxRuntimeParts(models, threads=self.threads) if models else None
            if models:
                register()
            if self.manifest["target"]["kind"] == "cuda":
                preload_cuda_runtime()
            load_kernel_libraries(self.manifest.get("libraries") or {})
            # A new folder, since a library is not read again from a path that it was loaded from. The file can be deleted once
            # it is loaded: the system keeps a mapped file's contents. So nothing is left behind, even after a crash.
            with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
                library = Path(folder) / LIBRARY
                unpack_library(archive, self.manifest, library)
                self._library, self._device = _open(library, self.manifest)
                self._threads = threads_of(self._library, self.threads)
        self._turns = turns_on(self.manifest["target"]["kind"])
        self._names = [spec["name"] for spec in self.inputs]
        self._name_set = set(self._names)
        self.shape_table = ShapeTable(self.manifest)
        self._entries = {
            item.entry: Entry(item, self._library, self._device) for item in self.shape_table.specialisations
        }
        # One for each of the last shapes that have no function of their own: an entry keeps buffers for its inputs.
        self._other_entry = lru_cache(_OTHER_SHAPES_KEPT)(self._make_other_entry)
        self._main = self._entries[self.shape_table.main.entry]
        self._main.add_machine()
        others = self.shape_table.others
        for name in (*self._entries, *((others.entry,) if others is not None else ())):
            self._main.check_has(name)

    def __call__(self, *arrays: ArrayLike, **named: ArrayLike) -> dict[str, NDArray[Any]]:
        """Run the model; inputs by position or by name (``model(**{"input.1": x})``).

        Inputs are numpy arrays, values that numpy can convert, or arrays of a library that supports DLPack. A large array that is
        contiguous is not copied on a CPU; others are. No later call changes the outputs.

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

    @property
    def shapes(self) -> list[dict[str, Any]]:
        """The shapes that the model was compiled for, those that matter most first.

        Each has the shapes by name in ``inputs`` and ``outputs``; ``batches``, the smaller batch sizes that run with the speed of
        this one; and ``latency_sec``, measured when it was compiled.
        """
        return self.shape_table.as_rows()

    @property
    def other_shapes(self) -> dict[str, Any] | None:
        """The shapes that the model runs besides, slower; None if it runs no others.

        ``inputs`` has the shapes by name, in which a name stands for a dimension of any size; ``dimensions`` says of each of these
        what its sizes are multiples of, the least and the most (None: no limit).
        """
        return None if self.shape_table.others is None else self.shape_table.others.describe()

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Run the model on inputs by name (see `__call__`)."""
        return self._run(self._in_order(inputs))

    def batched(self, data: ArrayLike | Mapping[str, ArrayLike] | Iterable[Any]) -> dict[str, NDArray[Any]]:
        """Run the model over any number of samples, and stack the results.

        Samples lie along the first axis of the model's inputs: a model of batch 8 runs eight samples at once. A model of several
        batch sizes runs those that take the least time. The last batch is padded with copies of its last sample, and the padding
        is removed from the results. If the samples of a batch influence each other, the results of that batch differ.

        Args:
            data: An array ``[N, ...]``; or a mapping of input names to such arrays; or an iterable of samples without the first
                axis. A sample is an array; for a model of several inputs, a tuple in their order or a mapping by name.

        Returns:
            Each output's array ``[N, ...]`` by name.

        Raises:
            ArtifactInputError: If the model's inputs and outputs do not have the same first axis, or the samples do not fit.
        """
        return run_in_batches(
            lambda item, arrays: self._run_on(self._entries[item.entry], arrays), self.shape_table, data
        )

    def time(
        self, *, repeat: int = 10, number: int | None = None, inputs: Mapping[str, ArrayLike] | None = None
    ) -> list[float]:
        """Return seconds per inference, one value per sample, after a warm-up.

        Args:
            repeat: The number of samples.
            number: Inferences per sample; by default as many as take 50 ms, at least one.
            inputs: Arrays by name, whose shapes decide what runs; by default those of `inputs`, with all elements one.

        Raises:
            ArtifactInputError: As calling the model does.
            ValueError: If `repeat` or `number` is not positive.
        """
        if repeat < 1 or (number is not None and number < 1):
            raise ValueError("the number of samples and of inferences in each must be at least 1")
        arrays = self._in_order(inputs if inputs is not None else self._ones())
        entry, padded, _ = self._entry_for(arrays)
        with self._turns:
            machine = entry.make_machine()
            tensors = [take(array) for take, array in zip(machine.takers, padded, strict=True)]
            return list(self._invoke(lambda: machine.time(tensors, repeat, number), ()))

    def _run(self, arrays: Sequence[Any]) -> dict[str, NDArray[Any]]:
        if self.shape_table.is_single:
            return self._run_on(self._main, arrays)
        entry, padded, count = self._entry_for(arrays)
        outputs = self._run_on(entry, padded)
        return outputs if count is None else {name: array[:count] for name, array in outputs.items()}

    def _entry_for(self, arrays: Sequence[Any]) -> tuple[Entry, Sequence[Any], int | None]:
        """Return the entry for arrays, the arrays as it takes them, and the size of a batch that was filled up (else None).

        Raises:
            ArtifactInputError: If no entry takes arrays of these shapes.
        """
        if self.shape_table.is_single:
            return self._main, arrays, None
        with_shapes = [array if hasattr(array, "shape") else _as_array(array) for array in arrays]
        item, count = self.shape_table.find(tuple(tuple(array.shape) for array in with_shapes))
        if count is None:
            return self._entries.get(item.entry) or self._other_entry(item.shapes), with_shapes, None
        size = item.batch or count
        padded = [filled_up(_as_array(array), size) for array in with_shapes]
        return self._entries[item.entry], padded, count

    def _make_other_entry(self, shapes: tuple[tuple[int, ...], ...]) -> Entry:
        item, _ = self.shape_table.find(shapes)
        return Entry(item, self._library, self._device)

    def _run_on(self, entry: Entry, arrays: Sequence[Any]) -> dict[str, NDArray[Any]]:
        with self._turns:
            machine = entry.take_machine()
            try:
                tensors = [take(array) for take, array in zip(machine.takers, arrays, strict=True)]
                outputs = entry.outputs.take(self._invoke(machine.function, tensors), tensors)
            finally:
                entry.idle.append(machine)
        if outputs is None:
            raise ArtifactError(
                f"{LIBRARY} does not have the {len(self.outputs)} outputs of the manifest",
                code="damaged-artifact",
            )
        return outputs

    def _invoke(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        try:
            if self.parts is not None:
                return self._threads.call(self._with_parts, (self.parts, function, arguments))
            return self._threads.call(function, arguments)
        except TVM_ERRORS as error:  # the inputs were checked against the manifest, so they are not the cause
            raise ArtifactError(f"{LIBRARY} cannot be run: {last_line(error)}", code="run-failed") from error

    @staticmethod
    def _with_parts(parts: Parts, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call a function on the thread that runs it: there the network finds its parts."""
        with running(parts):
            return function(*arguments)

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


@contextlib.contextmanager
def _opened(path: Path, verify_key: Path | None) -> Iterator[zipfile.ZipFile]:
    """Open the artifact; with a key, the bytes that it has verified."""
    if verify_key is None:
        with open_zip(path) as archive:
            yield archive
        return
    if not __package__:
        raise ArtifactError(
            f"{path} cannot verify itself, because this loader came with it. To verify it ({_VERIFY_KEY} or verify_key), load it by "
            "`tunefarm.load` (pip install 'tunefarm[run,verify]')",
            code="cannot-verify-itself",
        )
    from tunefarm_tuning.core.errors import InvalidInputError
    from tunefarm_tuning.provenance.verification import verified

    with contextlib.ExitStack() as stack:
        try:
            artifact = stack.enter_context(verified(path, verify_key))
        except InvalidInputError as error:
            raise ArtifactError(error.message, code=error.code) from error
        yield stack.enter_context(open_zip(path, artifact.file))


def _open(library: Path, manifest: Mapping[str, Any]) -> tuple[Any, Any]:
    import tvm

    with contextlib.suppress(OSError, RuntimeError):  # a network that sorts says itself what it lacks
        load_whole_runtime()
    kind = manifest["target"]["kind"]
    try:
        device = tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
    except TVM_ERRORS as error:
        raise ArtifactError(
            f"TVM does not know the device {kind!r}: {last_line(error)}", code="no-device"
        ) from error
    if not device.exist:
        why = f": {why_no_gpu()}" if kind == "cuda" else ""
        raise ArtifactError(f"the artifact needs a {kind} device; there is none here{why}", code="no-device")
    if kind == "cuda":
        check_gpu_of(manifest, device.compute_version)
    try:
        return tvm.runtime.load_module(str(library)), device
    except TVM_ERRORS as error:
        raise ArtifactError(
            f"{LIBRARY} cannot be loaded: {last_line(error)}", code="damaged-artifact"
        ) from error


def _as_array(value: Any) -> NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArtifactInputError(f"an input is not an array: {error}") from error

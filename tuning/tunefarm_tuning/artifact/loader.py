"""Load and run a tunefarm artifact. Needs Python 3.11, apache-tvm and numpy; nothing of tunefarm.

This file is also inside every artifact::

    import sys
    sys.path.insert(0, "resnet18.tunefarm")
    from loader import load

    model = load("resnet18.tunefarm")
    outputs = model(x)            # or model(**{"input.1": x}); a dict of outputs by name

An artifact is native code: load one only from somebody whom you would let run a program here.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

if __package__:
    from tunefarm_tuning.artifact.container import (
        LIBRARY,
        PACKAGES,
        ArtifactError,
        extract_library,
        manifest_in,
        open_zip,
        read_manifest,
        unpack_library,
    )
else:  # beside this file, in the zip
    from container import (  # type: ignore[import-not-found,no-redef]
        LIBRARY,
        PACKAGES,
        ArtifactError,
        extract_library,
        manifest_in,
        open_zip,
        read_manifest,
        unpack_library,
    )

__all__ = [
    "KNOWN_CPU_FEATURES",
    "ArtifactError",
    "ArtifactInputError",
    "TunedModel",
    "cpu_flags",
    "extract_library",
    "load",
    "read_manifest",
]

_TVM_ERRORS = (RuntimeError, OSError, ValueError, TypeError, LookupError, AttributeError)

_SAME_NAME = (
    "sse2 ssse3 popcnt movbe avx avx2 fma fma4 f16c xop bmi2 aes gfni vaes avx512f avx512dq avx512bw avx512vl avx512cd "
    "avx512er avx512ifma avx512vbmi i8mm bf16 sve sve2 sme"
)
_OTHER_NAME = (
    "sse3=pni sse4.1=sse4_1 sse4.2=sse4_2 lzcnt=abm bmi=bmi1 avxvnni=avx_vnni avxifma=avx_ifma avxvnniint8=avx_vnni_int8 "
    "avx512vbmi2=avx512_vbmi2 avx512vnni=avx512_vnni avx512bf16=avx512_bf16 avx512fp16=avx512_fp16 "
    "avx512bitalg=avx512_bitalg avx512vpopcntdq=avx512_vpopcntdq amx-tile=amx_tile amx-int8=amx_int8 amx-bf16=amx_bf16 "
    "amx-fp16=amx_fp16 neon=asimd fullfp16=asimdhp dotprod=asimddp"
)
KNOWN_CPU_FEATURES: Mapping[str, str] = {
    **{name: name for name in _SAME_NAME.split()},
    **dict(pair.split("=") for pair in _OTHER_NAME.split()),
}
"""LLVM's name of a CPU feature: what /proc/cpuinfo calls it. Only what compilers put into loops is here."""


class ArtifactInputError(ValueError):
    """The model cannot take these inputs."""


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, check_versions: bool = True
) -> TunedModel:
    """Load an artifact.

    Args:
        path: The ``.tunefarm`` file.
        threads: How many threads kernels run on, for the whole process (it sets ``TVM_NUM_THREADS``). Left out, it is what the artifact was measured
            with, but no more than there are cores; a ``TVM_NUM_THREADS`` that is set comes before that.
        check_versions: Whether another version of apache-tvm is an error; its format for compiled models may differ.

    Raises:
        ArtifactError: If the file is damaged, or made for another machine or version.
    """
    return TunedModel(Path(path), threads=threads, check_versions=check_versions)


class TunedModel:
    """A loaded model. Calls from several threads run one after the other.

    Attributes:
        manifest: What is known about the model: versions, checks, latencies, records.
        inputs: ``{"name", "shape", "dtype"}`` of each input, in order.
        outputs: The same of each output.
        threads: How many threads kernels run on.
    """

    def __init__(self, path: Path, *, threads: int | None = None, check_versions: bool = True) -> None:
        with open_zip(path) as archive:
            self.manifest: dict[str, Any] = manifest_in(archive, path)
            self.inputs: list[dict[str, Any]] = self.manifest["inputs"]
            self.outputs: list[dict[str, Any]] = self.manifest["outputs"]
            if check_versions:
                _check_versions(self.manifest)
            _check_cpu(self.manifest)
            # A fresh folder: a library that was loaded once is never read again from the same path. It can go as soon
            # as it is loaded: the system keeps a mapped file's contents. Nothing is left behind, even after a crash.
            with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
                library = Path(folder) / LIBRARY
                unpack_library(archive, self.manifest, library)
                self.threads = _set_threads(threads, self.manifest)
                self._vm, self._device = _start(library, self.manifest)
        self._lock = threading.Lock()

    def __call__(self, *arrays: ArrayLike, **named: ArrayLike) -> dict[str, NDArray[Any]]:
        """Run the model; inputs by position or by name (``model(**{"input.1": x})``).

        Raises:
            ArtifactInputError: If an input is missing, unknown, or of another shape or dtype.
        """
        if len(arrays) > len(self.inputs):
            raise ArtifactInputError(
                f"{len(arrays)} inputs were given, but the model has {_listed(self.inputs)}"
            )
        given = {spec["name"]: array for spec, array in zip(self.inputs, arrays, strict=False)}
        if twice := given.keys() & named.keys():
            raise ArtifactInputError(f"input {min(twice)!r} was given by position and by name")
        return self.run({**given, **named})

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Run the model on inputs by name (see `__call__`)."""
        arrays = self._arrays(inputs)
        with self._lock:
            self._invoke(arrays)
            results = _flatten(self._vm.get_outputs("main"))
            if len(results) != len(self.outputs):
                raise ArtifactError(
                    f"{LIBRARY} has {len(results)} outputs, the manifest {len(self.outputs)}",
                    code="damaged-artifact",
                )
            return {
                spec["name"]: _to_numpy(result) for spec, result in zip(self.outputs, results, strict=True)
            }

    def time(
        self, *, repeat: int = 10, number: int | None = None, inputs: Mapping[str, ArrayLike] | None = None
    ) -> list[float]:
        """Return seconds per inference, one sample per repeat; after a warm-up.

        Args:
            repeat: Samples.
            number: Inferences per sample. Left out: as many as take 50 ms, at least one.
            inputs: What to run on; ones if left out.

        Raises:
            ArtifactInputError: As calling the model does.
            ValueError: If `repeat` or `number` is not positive.
        """
        if repeat < 1 or (number is not None and number < 1):
            raise ValueError("the number of samples and of inferences in each must be at least 1")
        arrays = self._arrays(inputs if inputs is not None else self._ones())
        with self._lock:
            self._invoke(arrays)
            started = time.perf_counter()
            self._vm.invoke_stateful("main")
            self._device.sync()
            first_sec = time.perf_counter() - started
            if number is None:
                number = max(1, min(10_000, int(0.05 / max(first_sec, 1e-6))))
            timer = self._vm.time_evaluator("invoke_stateful", self._device, number=number, repeat=repeat)
            return [float(sample) for sample in timer("main").results]

    def _invoke(self, arrays: Sequence[NDArray[Any]]) -> None:
        import tvm

        try:
            self._vm.set_input("main", *[tvm.runtime.tensor(array, self._device) for array in arrays])
            self._vm.invoke_stateful("main")
        except _TVM_ERRORS as error:  # the inputs are what the manifest says, so it is not they
            raise ArtifactError(f"{LIBRARY} cannot be run: {_why(error)}", code="run-failed") from error

    def _ones(self) -> dict[str, NDArray[Any]]:
        import numpy as np

        return {spec["name"]: np.ones(spec["shape"], _dtype(spec["dtype"])) for spec in self.inputs}

    def _arrays(self, inputs: Mapping[str, ArrayLike]) -> list[NDArray[Any]]:
        import numpy as np

        names = [spec["name"] for spec in self.inputs]
        if unknown := [name for name in inputs if name not in names]:
            raise ArtifactInputError(
                f"there is no input {unknown[0]!r}; the model has {_listed(self.inputs)}"
            )
        arrays = []
        for spec in self.inputs:
            name = spec["name"]
            if name not in inputs:
                raise ArtifactInputError(f"input {name!r} is missing; the model has {_listed(self.inputs)}")
            try:
                array = np.asarray(inputs[name])
            except ValueError as error:  # lists of different lengths
                raise ArtifactInputError(f"input {name!r} is no array: {error}") from error
            if str(array.dtype) != spec["dtype"]:
                raise ArtifactInputError(
                    f"input {name!r} is {array.dtype}, but the model takes {spec['dtype']}: "
                    f"convert it with .astype({spec['dtype']!r})"
                )
            if list(array.shape) != list(spec["shape"]):
                raise ArtifactInputError(
                    f"input {name!r} has shape {list(array.shape)}, but the model takes {list(spec['shape'])}"
                )
            arrays.append(np.ascontiguousarray(array).reshape(array.shape))
        return arrays


def _check_versions(manifest: Mapping[str, Any]) -> None:
    made_with = {name: manifest["versions"].get(name) for name in PACKAGES}
    wanted = " ".join(f"{name}=={version}" for name, version in made_with.items() if version)
    for name, version in made_with.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise ArtifactError(
                f"{name} is not installed: pip install {wanted}", code="version-mismatch"
            ) from None
        if version is not None and installed != version:
            raise ArtifactError(
                f"the artifact was made with {name} {version}, but {installed} is installed: pip install {wanted}",
                code="version-mismatch",
            )


def _check_cpu(manifest: Mapping[str, Any]) -> None:
    """Refuse what would end in an illegal instruction."""
    machine = manifest.get("machine")
    if machine is not None and machine != platform.machine():
        raise ArtifactError(
            f"the artifact is for {machine}, this machine is {platform.machine()}", code="wrong-machine"
        )
    flags = cpu_flags()
    needed = manifest.get("cpu_features") or []
    missing = [
        name for name in needed if name in KNOWN_CPU_FEATURES and KNOWN_CPU_FEATURES[name] not in flags
    ]
    if flags and missing:
        raise ArtifactError(
            f"the artifact was compiled for {manifest['target_key']}; this CPU lacks {', '.join(missing)}. "
            "Compile the model for this machine",
            code="wrong-machine",
        )


def cpu_flags() -> frozenset[str]:
    """Return the CPU's features as Linux names them; empty where it does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _start(library: Path, manifest: Mapping[str, Any]) -> tuple[Any, Any]:
    import tvm
    from tvm import relax

    kind = manifest["target"]["kind"]
    try:
        device = tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
    except _TVM_ERRORS as error:
        raise ArtifactError(f"TVM knows no device {kind!r}: {_why(error)}", code="no-device") from error
    if not device.exist:
        raise ArtifactError(f"the artifact needs a {kind} device; there is none here", code="no-device")
    try:
        return relax.VirtualMachine(tvm.runtime.load_module(str(library)), device), device
    except _TVM_ERRORS as error:
        raise ArtifactError(f"{LIBRARY} cannot be loaded: {_why(error)}", code="damaged-artifact") from error


def _why(error: Exception) -> str:
    """Return the last line of what TVM says: a C++ stack trace may come before it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _set_threads(threads: int | None, manifest: Mapping[str, Any]) -> int:
    """Set how many threads kernels run on, and return how many it became."""
    import tvm  # noqa: F401  (registers the functions below)
    import tvm_ffi

    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}, but must be at least 1")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads is None and os.environ.get("TVM_NUM_THREADS", "").isdigit():
        threads = int(os.environ["TVM_NUM_THREADS"])
    elif threads is None:
        threads = max(1, min(cores, manifest.get("threads") or cores))
    # TVM keeps a pool of threads for every thread that calls it. The variable sizes the pools to come (unset, TVM takes
    # half of the cores); the call narrows this thread's, which may have been made before.
    os.environ["TVM_NUM_THREADS"] = str(threads)
    tvm_ffi.get_global_func("runtime.config_threadpool")(0, threads)
    return int(tvm_ffi.get_global_func("runtime.NumThreads")())


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [item for part in value for item in _flatten(part)]
    return [value]


def _to_numpy(value: Any) -> NDArray[Any]:
    array: NDArray[Any] = value.numpy()
    return array


def _dtype(name: str) -> Any:
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def _listed(specs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{spec['name']!r} ({spec['dtype']} {list(spec['shape'])})" for spec in specs)

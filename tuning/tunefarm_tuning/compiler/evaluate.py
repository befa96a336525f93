"""`evaluate`: times an artifact."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tunefarm_tuning.artifact.reading import fetch_library, fetch_parts, manifest_of
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.device import RemoteDevice, device_kind
from tunefarm_tuning.measure.device_functions import artifact_child
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.timing_blocks import inferences_of_sample
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits
from tunefarm_tuning.process.model_child import model_error
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TensorSpec

__all__ = ["Latency", "evaluate"]


def evaluate(
    artifact: Path | str,
    *,
    device: RemoteDevice | None = None,
    repeat: int = 10,
    threads: int | None = None,
    limits: CompileLimits | None = None,
) -> Latency:
    """Time an artifact on random inputs, in a child process.

    Args:
        artifact: The ``.tunefarm`` file.
        device: Where to run it; None is this machine.
        repeat: The number of samples. A sample is the mean of as many inferences in a row as take 50 ms.
        threads: The number of threads that kernels run on; by default as many as when the artifact was compiled.
        limits: `model_sec` limits each run, `memory_bytes` the child.

    Returns:
        The samples in seconds per inference, and their median.

    Raises:
        InvalidInputError: If `repeat` is less than 1; if the file is not an artifact, damaged, or made for another machine or
            version.
        InvalidModelError: If it crashed or exceeded its time on this machine.
        RunFailed: If it crashed or exceeded its time on a device.
        DeviceLostError: If the device is away.
    """
    if repeat < 1:
        raise InvalidInputError(f"repeat must be at least 1, not {repeat}")
    path, limits = Path(artifact), limits or CompileLimits()
    manifest = manifest_of(path)
    kind = device_kind(Target.from_json(manifest["target"]))
    child_limits = ChildLimits(memory_bytes=None if kind == "cuda" else limits.memory_bytes)
    threads = threads or int(manifest["threads"])
    if device is None:
        return _evaluate_here(path, repeat, threads, child_limits, limits.model_sec)
    with closing(ScratchDir()) as scratch:
        library, inputs = scratch.path / "lib.so", scratch.path / "inputs.npz"
        fetch_library(path, library)
        save_arrays(
            inputs, random_inputs([TensorSpec.from_json(spec) for spec in manifest["inputs"]], seed=0)
        )
        runner = DeviceRun(device, kind=kind, threads=threads, limits=child_limits, folder=scratch.path)
        runner.use_parts(fetch_parts(path, scratch.path))
        try:
            threads = runner.connect()
            params = {"path": str(library), "entry": "main", "inputs": str(inputs), "number": 1, "repeat": 1}
            first = runner.call("time_model", params, timeout_sec=limits.model_sec)["samples_sec"][0]
            params |= {
                "number": inferences_of_sample(first),
                "repeat": repeat,
            }
            samples = runner.call("time_model", params, timeout_sec=limits.model_sec)["samples_sec"]
        finally:
            runner.close()
    return Latency.of(samples, threads)


def _evaluate_here(path: Path, repeat: int, threads: int, limits: ChildLimits, timeout_sec: float) -> Latency:
    with artifact_child([path], limits) as child:
        try:
            reply = child.call(
                "time",
                {"path": str(path.absolute()), "threads": threads, "repeat": repeat, "number": None},
                timeout_sec=timeout_sec,
            )
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise model_error("run", "timing the artifact", error) from error
    return Latency.of(reply["samples_sec"], int(reply["threads"]))

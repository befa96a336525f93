"""`time_network`: times a network alone, while the search that tunes it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tunefarm_tuning.artifact.reading import fetch_library, manifest_of
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import latency_of_samples

_numbers = itertools.count()


class NetworkRunner(Protocol):
    """What times a library on the device; `RpcRunner` is one."""

    def time_network(
        self, library: Path, inputs: Path, *, sampling_sec: float, timeout_sec: float
    ) -> dict[str, Any]: ...


def time_network(
    runner: NetworkRunner,
    artifact: Path,
    inputs: Path,
    folder: Path,
    *,
    sampling_sec: float,
    timeout_sec: float,
) -> Latency:
    """Time a network in its main set of shapes, on the device that a search uses.

    It is timed by the process that measures the search's kernels, so nothing has to be started, and nothing runs beside it.

    Args:
        runner: Of the search.
        artifact: The network's artifact.
        inputs: The file of inputs that its compile compared it on.
        folder: A folder that the runner's process may read, for copies of them.
        sampling_sec: Seconds of sampling.
        timeout_sec: Seconds after which it is given up.

    Raises:
        InvalidInputError: If the artifact is damaged, or runs parts in ONNX Runtime (runs-parts).
        RunFailed: If the network crashed, or exceeded its time.
        DeviceLostError: If the device went away.
    """
    if manifest_of(artifact).get("parts"):
        raise InvalidInputError("ONNX Runtime runs parts of the network", code="runs-parts")
    number = next(_numbers)  # the dynamic loader would return the first library loaded from a path
    library, copied = folder / f"network-{number}.so", folder / f"network-{number}.npz"
    try:
        fetch_library(artifact, library)
        copied.write_bytes(inputs.read_bytes())
        reply = runner.time_network(library, copied, sampling_sec=sampling_sec, timeout_sec=timeout_sec)
    finally:
        library.unlink(missing_ok=True)
        copied.unlink(missing_ok=True)
    watched: Sequence[dict[str, Any] | None] = reply["watched"]
    return latency_of_samples(
        reply["samples_sec"],
        [None if stretch is None else Watched.from_json(stretch) for stretch in watched],
        reply["loops_sec"],
        threads=int(reply["threads"]),
        inferences=int(reply["inferences"]),
    )

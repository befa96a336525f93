"""Prove a whole job on the GPU: upload, tune through the device's agent, compile, check, download and run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.farm_job import GpuFarm
from benchmarks.gpu.parts import in_a_child, inputs_and_expected
from benchmarks.gpu.proofs import holds, right

from tunefarm_tuning.artifact.pack import RECORDS

_SEARCH_SEC = 30.0


def tuned_by(
    farm: GpuFarm,
    network: Path,
    folder: Path,
    *,
    trials: int | None = None,
    readings: tuple[str, ...] = ("clock_mhz",),
) -> str:
    """Have a network tuned, and return the outcome as a sentence.

    Args:
        farm: With one device.
        network: Its file.
        folder: For what is downloaded.
        trials: How many configs the search tries; None for a search of 30 seconds.
        readings: The readings of the GPU's state that each record must have.

    Raises:
        NotProvedError: If nothing was measured, if no kernel of the artifact is tuned, if a record lacks a reading, or if the
            artifact is wrong.
    """
    done = farm.tune(network, folder, seconds=_SEARCH_SEC if trials is None else None, trials=trials)
    good = done["trials"] - done["failures"]
    holds(good > 0, f"of {done['trials']} candidates none was measured")
    holds(done["covered"] > 0, f"none of {done['tasks']} kernels is tuned")
    silent = [
        name
        for name in readings
        if any(name not in record.get("gpu", {}) for record in extras(Path(done["artifact"])))
    ]
    holds(not silent, f"records do not tell {', '.join(silent)} of the GPU")
    inputs, expected = inputs_and_expected(network)
    answer = right(in_a_child("artifact", {"path": done["artifact"]}, inputs, expected))
    beside = "; ".join(f"{name}: {why}" for name, why in done["baselines"].items())
    return f"{good} of {done['trials']} measured, {done['covered']} of {done['tasks']} kernels are tuned, {answer}; {beside}"


def extras(artifact: Path) -> list[dict[str, Any]]:
    """Return the extra fields of the records in an artifact."""
    with zipfile.ZipFile(artifact) as archive:
        lines = archive.read(RECORDS).decode().splitlines()
    return [json.loads(line).get("extra", {}) for line in lines]

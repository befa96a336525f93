"""Child process: reads a stranger's file of samples, and writes the sets that are run as files of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.reference.sample_file import read_sample_file
from tunefarm_tuning.reference.samples import SampleSummary, used_sets
from tunefarm_tuning.workload.task import TensorSpec


def write_feeds(params: dict[str, Any]) -> dict[str, Any]:
    """Check a file, and write a file ``<folder>/<stem>-<index>.npz`` for each set that is run.

    Args:
        params: ``path``, ``shapes`` (the inputs' specs in each set of shapes), ``bound`` (names of inputs with a value), ``limit_bytes``, ``most_sets``, ``folder``, ``stem``.

    Returns:
        `SampleSummary` as JSON, and ``feeds``: the written files.

    Raises:
        InvalidInputError: As `samples.check_samples`.
    """
    shapes = [[TensorSpec.from_json(spec) for spec in specs] for specs in params["shapes"]]
    samples = read_sample_file(Path(params["path"]), shapes, params["limit_bytes"], bound=params["bound"])
    summary = SampleSummary(
        sets=samples.sets, used=used_sets(samples.sets, params["most_sets"]), fits=samples.fits
    )
    feeds = [Path(params["folder"], f"{params['stem']}-{index}.npz") for index in summary.used]
    for index, feed in zip(summary.used, feeds, strict=True):
        save_arrays(feed, samples.set_of(index))
    return {**summary.to_json(), "feeds": [str(feed) for feed in feeds]}


HANDLERS = {"write_feeds": write_feeds}

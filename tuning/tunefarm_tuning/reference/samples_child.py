"""Child process: reads a stranger's file of samples, and writes the sets that are run as files of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.core.array_file import save_arrays
from tunefarm_tuning.reference.sample_file import read_sample_file
from tunefarm_tuning.reference.samples import SampleSummary, feed_path, used_sets
from tunefarm_tuning.workload.task import TensorSpec


def write_feeds(params: dict[str, Any]) -> dict[str, Any]:
    """Check a file, and write a file for each set that is run (`samples.feed_path`).

    Args:
        params: ``path``, ``shapes`` (the inputs' specs in each set of shapes), ``bound`` (names of inputs with a value), ``limit_bytes``, ``most_sets``, ``folder``, ``stem``.

    Returns:
        `SampleSummary` as JSON.

    Raises:
        InvalidInputError: As `samples.check_samples`.
    """
    shapes = [[TensorSpec.from_json(spec) for spec in specs] for specs in params["shapes"]]
    samples = read_sample_file(Path(params["path"]), shapes, params["limit_bytes"], bound=params["bound"])
    summary = SampleSummary(
        sets=samples.sets, used=used_sets(samples.sets, params["most_sets"]), fits=samples.fits
    )
    for index in summary.used:
        save_arrays(feed_path(Path(params["folder"]), params["stem"], index), samples.set_of(index))
    return summary.to_json()


HANDLERS = {"write_feeds": write_feeds}

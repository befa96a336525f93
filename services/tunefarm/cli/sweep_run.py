"""``tunefarm tune`` with several files, pools or precisions: a sweep, from the uploads to a folder for each artifact."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefarm.cli.base import exit_codes
from tunefarm.cli.base.edge import Exit
from tunefarm.cli.base.model_files import MODEL_ENDINGS, ModelFile, noting_refusals
from tunefarm.cli.base.output import Output, write_whole
from tunefarm.cli.base.upload_file import upload_file
from tunefarm.cli.sweeps import show_sweep
from tunefarm_text import quantities
from tunefarm_text.job_terms import MAX_SWEEP_JOBS
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Client, Sweep, SweepCell

_OF_ONE_COMBINATION = ("unsupported-precision", "incompatible-target")
"""Refusals of a combination that do not end the others."""
_LONGEST = 40  # characters of a part of a folder's name: with three, all file systems take it


def run_sweep(
    out: Output,
    client: Client,
    files: Sequence[ModelFile],
    *,
    name: str | None,
    device_keys: Sequence[str],
    precisions: Sequence[str],
    terms: Mapping[str, Any],
    labels: Mapping[str, Any],
    output: Path,
    detach: bool,
) -> None:
    """Upload the files, tune them on all pools in all precisions, and download every artifact.

    What one file or job refuses does not end the others; the command fails at its end, then.

    Args:
        out: Where to write.
        client: The server.
        files: The networks.
        name: Name of the model, if there is one file.
        device_keys: The pools; empty for the only one.
        precisions: Formats of stored weights; empty for the model's own.
        terms: The other terms, with the budget of the sweep.
        labels: Tags and note.
        output: Folder for the results.
        detach: Return when the sweep is created.
    """
    _check(client, files, device_keys, precisions, {**labels, **terms})
    samples, refused = _upload_all(out, client, files, name)
    if not samples:
        raise InvalidInputError(
            f"none of the {len(files)} files can be tuned" if len(files) > 1 else refused[0]["message"],
            code="empty-sweep",
            refused=refused,
        )
    sweep = client.sweeps.create(
        list(samples),
        device_keys=device_keys,
        precisions=precisions,
        samples={model_id: ids for model_id, ids in samples.items() if ids},
        refused=refused,
        **labels,
        **terms,
    )
    if detach:
        out.result({"sweep": sweep.raw}, sweep.id)
        if not out.json:
            out.note(f"show it with: tunefarm sweeps show {sweep.id}")
        return
    out.note(f"sweep {sweep.id}; `tunefarm sweeps show {sweep.id}` shows it, also later")
    sweep = _follow(out, client, sweep)
    artifacts = _download(client, sweep, output)
    write_whole(output / "sweep.report.json", json.dumps(client.sweeps.report(sweep.id), indent=2) + "\n")
    client.sweeps.save_report(sweep.id, output / "sweep.report.html")
    if out.json:
        out.data({"sweep": sweep.raw, "artifacts": artifacts})
    else:
        show_sweep(out, sweep)
        for artifact in artifacts.values():
            out.text(f"{artifact}  {quantities.size(Path(artifact).stat().st_size)}")
        out.text(f"{output / 'sweep.report.html'}")
    if any(cell.state != "succeeded" for cell in sweep.cells):
        raise Exit(exit_codes.FAILED)


def _check(
    client: Client,
    files: Sequence[ModelFile],
    device_keys: Sequence[str],
    precisions: Sequence[str],
    terms: Mapping[str, Any],
) -> None:
    """Let the server check the terms of each pool in each precision: a typo must not cost an upload."""
    from tunefarm.client import InvalidRequestError

    combinations = list(product(device_keys or (None,), precisions or (None,)))
    jobs, trials = len(files) * len(combinations), terms.get("trials")
    if jobs > MAX_SWEEP_JOBS:
        raise InvalidInputError(
            f"{quantities.plural(len(files), 'file')} x {quantities.plural(len(combinations), 'combination')} of pools and precisions are "
            f"{jobs} jobs: a sweep has at most {MAX_SWEEP_JOBS}",
            code="too-many-jobs",
            limit=MAX_SWEEP_JOBS,
        )
    if trials is not None and trials < jobs:
        raise InvalidInputError(
            f"{trials} trials are too few for {jobs} jobs, which share them: {jobs} is the least",
            code="invalid-budget",
        )
    for device_key, precision in combinations:
        try:
            client.jobs.check(**terms, device_key=device_key, precision=precision)
        except InvalidRequestError as error:
            if error.code not in _OF_ONE_COMBINATION:
                raise


def _upload_all(
    out: Output, client: Client, files: Sequence[ModelFile], name: str | None
) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """Upload and import files with their samples; return the samples' ids by those of the models, and the files that were refused.

    A file with the network of one before it is the same model: it gets no job of its own, which is said. A file whose samples are
    refused is refused.
    """
    paths: dict[str, Path] = {}
    samples: dict[str, list[str]] = {}
    refused: list[dict[str, str]] = []
    for file in files:
        with noting_refusals(out, file.path, refused, of_several=len(files) > 1):
            with upload_file(out, file.path) as path:
                uploaded = client.models.upload(path, name=name, shapes=file.shapes, values=file.values)
            out.note(f"{file.path}: uploaded")
            model_id = client.models.wait(uploaded.id).id
            sample_ids = client.samples.upload_all(model_id, file.samples)
            first = paths.setdefault(model_id, file.path)
            samples[model_id] = list(dict.fromkeys([*samples.get(model_id, ()), *sample_ids]))
            if first is not file.path:
                out.warning(f"{file.path}: the same network as {first}, and tuned with it")
    return samples, refused


def _follow(out: Output, client: Client, sweep: Sweep) -> Sweep:
    """Wait for the sweep's jobs, and tell how each goes on; an interrupt cancels them all."""
    told: dict[int, str] = {}

    def tell(seen: Sweep) -> None:
        for cell in seen.cells:
            if told.get(cell.position) != cell.state:
                told[cell.position] = cell.state
                reason = f": {cell.error.message}" if cell.error else ""
                out.note(f"{_where(cell)}: {cell.state}{reason}")

    try:
        return client.sweeps.wait(sweep.id, on_progress=tell)
    except BaseException as stop:
        if not isinstance(stop, Exception):  # Ctrl-C, SIGTERM, or a closed terminal
            out.note(f"cancelling sweep {sweep.id}")
            client.sweeps.cancel(sweep.id)
        raise


def _where(cell: SweepCell) -> str:
    return " · ".join(part for part in (cell.model_name, cell.device_key, cell.precision) if part)


def _download(client: Client, sweep: Sweep, output: Path) -> dict[str, str]:
    """Download each artifact with its reports into a folder of its own; return the artifacts' paths by job."""
    done = [cell for cell in sweep.cells if cell.job_id is not None and cell.state == "succeeded"]
    folders = _folders(done)
    artifacts = {}
    for cell in done:
        assert cell.job_id is not None
        files = client.job(cell.job_id).download(output / folders[cell.position])
        artifacts[cell.job_id] = str(files.artifact)
    return artifacts


def _folders(cells: Sequence[SweepCell]) -> dict[int, str]:
    """Return the name of each combination's folder: what tells it from the others, also where capitals do not count."""
    names = {
        cell.position: "-".join(
            "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in part[:_LONGEST])
            for part in (_without_ending(cell.model_name), cell.device_key, cell.precision)
        ).strip(".-")
        for cell in cells
    }
    uses = Counter(name.lower() for name in names.values())
    return {
        position: name if uses[name.lower()] == 1 else f"{name}~{position}"  # no other name has a tilde
        for position, name in names.items()
    }


def _without_ending(name: str) -> str:
    return next((name.removesuffix(ending) for ending in MODEL_ENDINGS if name.endswith(ending)), name)

"""``tunefarm jobs artifact|report|measure|trace|source|records``: download what a job produced."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import BaselineNames, OutFile
from tunefarm.cli.base.output import Output, artifact_file, check_folder, write_whole
from tunefarm.cli.base.references import find_job
from tunefarm.cli.jobs.look import JobId, app
from tunefarm.cli.report import show_report, show_steps
from tunefarm_text import quantities
from tunefarm_text.trace_words import trace_words

if TYPE_CHECKING:
    from tunefarm.client import Client
    from tunefarm.client.results.artifacts import Draft


class SourceKind(StrEnum):
    """The kinds of source of `tunefarm jobs source`."""

    SCHEDULE = "schedule"
    LLVM = "llvm"
    ASM = "asm"
    CUDA = "cuda"


@command(app, "artifact")
def get_artifact(
    out: Output,
    server: Server,
    job_id: JobId,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Folder for the file, the current one by default; or a path that ends in NAME.tunefarm.",
        ),
    ] = Path(),
    name: Annotated[
        str | None, typer.Option("--name", help="The file's name; the server's by default.")
    ] = None,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="If the job has no artifact, compile the best kernels so far. A job that has not ended continues.",
        ),
    ] = False,
    so_far: Annotated[
        bool,
        typer.Option(
            "--so-far",
            help="If the job has no artifact, download the newest one so far: the untuned one, which is ready some seconds after the job's start, or the last one that --now compiled.",
        ),
    ] = False,
) -> None:
    """Download a job's artifact; while the job searches, or after it was cancelled, with --now or --so-far.

    If the farm signs its results, the signed statement is written beside it, as NAME.tunefarm.intoto.jsonl: see `tunefarm verify`.
    """
    from tunefarm.client.errors import InvalidRequestError

    folder, name = _file_of(output, name)
    check_folder(folder)
    if now and so_far:
        raise InvalidRequestError(
            "--now compiles a new artifact, --so-far takes the one that is ready: give only one of them",
            code="invalid-option",
        )
    with server.connect() as client:
        job_id = find_job(client, job_id)
        if now and client.jobs.get(job_id).state != "succeeded":
            job_id = _compiled_now(out, client, job_id)
        drafts = [client.jobs.get(job_id).draft] if so_far else []
        path = client.jobs.download(job_id, folder, name=name, so_far=so_far)
        if so_far:
            drafts.append(client.jobs.get(job_id).draft)
        draft = _draft_of(path, drafts)
    size_bytes = path.stat().st_size
    envelope = path.with_name(f"{path.name}.intoto.jsonl")
    signed = {"envelope": str(envelope) if envelope.exists() else None}
    result = {"job_id": job_id, "artifact": str(path), "size_bytes": size_bytes, **signed}
    out.result(
        {**result, "draft": draft.text} if draft is not None else result,
        f"{path}  {quantities.size(size_bytes)}{f', so far: {draft.text}' if draft is not None else ''}",
    )


def _file_of(output: Path, name: str | None) -> tuple[Path, str | None]:
    """Return the folder of an artifact, and its file's name; None for the server's."""
    from tunefarm.client.errors import InvalidRequestError

    folder, artifact_name = artifact_file(output)
    if name and artifact_name:
        raise InvalidRequestError(
            f"--output {output} names the file: leave --name out, or give --output {folder}",
            code="invalid-option",
        )
    return folder, name or artifact_name


def _compiled_now(out: Output, client: Client, job_id: str) -> str:
    """Compile the best kernels so far of a job; return the id of the job that did."""
    handle = client.job(client.jobs.compile_now(job_id).id)
    out.note(f"job {handle.id} compiles the best kernels so far of job {job_id}")
    handle.wait()
    return handle.id


def _draft_of(path: Path, drafts: Iterable[Draft | None]) -> Draft | None:
    """Return the draft that was saved; None if the file is another one: a better draft or the artifact may have come meanwhile."""
    with path.open("rb") as file:
        saved = hashlib.file_digest(file, "sha256").hexdigest()
    return next((draft for draft in drafts if draft is not None and draft.sha256 == saved), None)


@command(app, "report")
def get_report(
    out: Output,
    server: Server,
    job_id: JobId,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one self-contained HTML file."),
    ] = None,
) -> None:
    """Show the report of an ended job: latencies, kernels, checks, coverage, trials, and how to do it again."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        if html is not None:
            page = client.jobs.save_report(job_id, html)
            out.result({"report_page": str(page)}, str(page))
            return
        report = client.jobs.report(job_id)
    if out.json:
        out.data(report)
    else:
        show_report(out, report)
        show_steps(out, report)


@command(app, "measure")
def measure_job(
    out: Output,
    server: Server,
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is measured.")] = True,
    baselines: BaselineNames = None,
) -> None:
    """Measure a job's artifact again, now, on a device of its pool, and list all its measurements.

    Its untuned network, ONNX Runtime and the job's other runtimes are timed beside it; --baselines adds further ones. The latest measurement on a quiet device is what
    report, pages and lists show, unless it timed fewer networks than the shown one.
    """
    with server.connect() as client:
        job_id = find_job(client, job_id)
        measurements = client.jobs.measure(job_id, baselines=baselines or (), timeout_sec=None if wait else 0)
    if out.json:
        out.data(measurements.raw)
        return
    rows = [taken.summary() for taken in measurements.items]
    speedups = list(dict.fromkeys(name for row in rows for name in row if name.startswith("speed-up ")))
    named = ("", "device", "other work", "artifact", *speedups, "shown")
    columns = ("measured", "device", "other work", ">artifact", *(f">{name}" for name in speedups), "shown")
    out.table(columns, [tuple(row.get(name, quantities.NONE) for name in named) for row in rows])
    if measurements.is_open:
        state = measurements.waiting or measurements.state
        out.note(f"it is {state}; `tunefarm jobs report {job_id}` shows it when it is done")


@command(app, "trace")
def show_trace(
    out: Output,
    server: Server,
    job_id: JobId,
    output: OutFile = None,
) -> None:
    """Show where every second of a job went; with -o, write a Chrome trace for chrome://tracing or Perfetto.

    Each second counts once, for the most specific activity that was under way. The job may be in any state.
    """
    with server.connect() as client:
        trace = client.jobs.trace(find_job(client, job_id))
    seconds = trace["otherData"]["seconds"]
    if output is not None:
        write_whole(output, json.dumps(trace, separators=(",", ":")))
    if out.json:
        out.data({"seconds": seconds, "output": None if output is None else str(output)})
        return
    total = sum(seconds.values())
    rows = sorted(seconds.items(), key=lambda item: -item[1])
    out.table(
        ("what", ">seconds", ">share"),
        [
            (trace_words(kind), f"{sec:.2f}", quantities.percent(sec / total if total else None))
            for kind, sec in rows
        ],
    )
    if output is not None:
        out.text(f"{output}: {len(trace['traceEvents'])} events")


@command(app, "source")
def show_source(
    out: Output,
    server: Server,
    job_id: JobId,
    task: Annotated[
        int, typer.Argument(metavar="TASK", min=0, help="The kernel's number, as in `tunefarm jobs tasks`.")
    ],
    kind: Annotated[
        SourceKind,
        typer.Option(
            "--kind",
            help="Scheduled TensorIR; LLVM IR or assembly (CPU kernels); CUDA C (GPU kernels).",
        ),
    ] = SourceKind.SCHEDULE,
    output: OutFile = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Seconds to wait for the worker."),
    ] = 120.0,
) -> None:
    """Print the source of a kernel's best config: the one in the artifact, else the best recorded so far.

    A worker generates it at the first request, within seconds. The job may be in any state.
    """
    with server.connect() as client:
        job_id = find_job(client, job_id)
        text = client.jobs.source(job_id, task, kind=kind.value, timeout_sec=timeout)
    if output is not None:
        write_whole(output, text)
        out.result(
            {"kind": kind.value, "output": str(output)},
            f"{output}: {quantities.plural(text.count(chr(10)), 'line')}",
        )
    elif out.json:
        out.data({"kind": kind.value, "source": text})
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


@command(app, "records")
def save_records(
    out: Output,
    server: Server,
    job_id: JobId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file; JOB_ID-records.jsonl by default."),
    ] = None,
) -> None:
    """Download a job's records as JSON lines, for the engine's `load_records` and `apply_history_best`."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        path = client.jobs.save_records(job_id, output or Path(f"{job_id}-records.jsonl"))
    with path.open("rb") as lines:
        count = sum(1 for _ in lines)
    out.result({"records": count, "output": str(path)}, f"{path}: {count} records")

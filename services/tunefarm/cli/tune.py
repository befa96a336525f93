"""``tunefarm tune`` and ``tunefarm compile``: upload, tune or only compile, and download with one command."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.model_files import ModelFile as NamedFile
from tunefarm.cli.base.model_files import model_files
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm.cli.base.options import (
    CompileOptions,
    Inputs,
    LabelOptions,
    Shape,
    TermOptions,
    ValueOption,
)
from tunefarm.cli.base.output import Output, artifact_file, check_folder
from tunefarm.cli.base.upload_file import note_other_name, upload_file
from tunefarm.cli.progress_view import View, view
from tunefarm.cli.report import show_report
from tunefarm.cli.sweep_run import run_sweep
from tunefarm.live.board import Board
from tunefarm.live.waiting import LiveView
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Client, Download, Job, JobHandle

DEFAULT_MINUTES = 10.0
QUICK_MINUTES = 1.0
_CANCEL_TIMEOUT_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(OptionGroup):
    """Options of the upload."""

    shape: Shape = None
    value: ValueOption = None
    inputs: Inputs = None
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the model; the file's name by default.")
    ] = None


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="The network: an ONNX or TFLite file.")]
ModelFiles = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL...", help="The network, an ONNX or TFLite file; several are a sweep."),
]
Results = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Folder for NAME.tunefarm, NAME.report.json and NAME.report.html; or a path that ends in NAME.tunefarm.",
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Start the job and return; `tunefarm jobs watch` follows it. Needs a server."
    ),
]


def tune_model(
    out: Output,
    server: Server,
    models: ModelFiles,
    terms: TermOptions,
    upload: ModelOptions,
    labels: LabelOptions,
    output: Results = Path(),
    detach: Detach = False,
) -> None:
    """Tune a network: upload it, search, compile, check, download.

    Uses the configured server, else the farm on this machine. If there is none, it starts a farm until the job ends.
    Without a budget it takes ten minutes. Ctrl-C asks, then cancels the job, or compiles the best so far. SIGTERM and a closed
    terminal cancel it; a job that is started with --detach, or under nohup, goes on.

    Several files, pools or precisions are a sweep: one job for each combination, with one budget. Pools and precisions have commas
    between them (--device-key x86,arm). To give a shape or inputs for one file, write its name first: `--shape
    a.onnx:x=1,3,224,224`, `--inputs a.onnx:samples.npz`.
    """
    _check_limits(terms.limits())
    given = {"--minutes": terms.minutes, "--job-seconds": terms.job_seconds}
    if terms.quick and (beside := next((name for name, limit in given.items() if limit is not None), None)):
        raise InvalidInputError(
            f"--quick means --minutes 1: give only one of --quick and {beside}", code="invalid-budget"
        )
    if terms.quick:
        terms = replace(terms, minutes=QUICK_MINUTES)
    if all(limit is None for limit in terms.limits().values()):
        terms = replace(terms, minutes=DEFAULT_MINUTES)
    named = terms.terms()
    pools, precisions = _listed(terms.device_key), _listed(terms.precision)
    files = _files(models, upload, precisions)
    if len(files) == 1 and len(pools) < 2 and len(precisions) < 2:
        _run(out, server, files[0], named, upload, labels, output, detach=detach)
        return
    _check_output(out, output, named=output, detach=detach)
    with _client(out, server, detach=detach) as client:
        run_sweep(
            out,
            client,
            files,
            name=upload.name,
            device_keys=pools,
            precisions=precisions,
            terms={name: term for name, term in named.items() if name not in ("device_key", "precision")},
            labels={"tags": labels.tag or (), "note": labels.note or ""},
            output=output,
            detach=detach,
        )


def _files(models: Sequence[Path], upload: ModelOptions, precisions: Sequence[str]) -> list[NamedFile]:
    return model_files(
        models,
        shapes=upload.shape,
        values=upload.value,
        inputs=upload.inputs,
        name=upload.name,
        precisions=precisions,
    )


def _listed(text: str | None) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))


def compile_model(
    out: Output,
    server: Server,
    model: ModelFile,
    terms: CompileOptions,
    upload: ModelOptions,
    labels: LabelOptions,
    output: Results = Path(),
    detach: Detach = False,
) -> None:
    """Compile a network without a search: upload it, compile, check, download.

    Each kernel uses the best record of all earlier jobs for such a device; without a record, it stays untuned. The server or farm is
    chosen as by `tunefarm tune`. Ctrl-C asks, then cancels the job, as SIGTERM and a closed terminal do.
    """
    (file,) = _files([model], upload, _listed(terms.precision))
    _run(out, server, file, terms.terms(), upload, labels, output, detach=detach)


def _run(
    out: Output,
    server: Server,
    file: NamedFile,
    terms: dict[str, Any],
    upload: ModelOptions,
    labels: LabelOptions,
    output: Path,
    *,
    detach: bool,
) -> None:
    """Upload a model, run a job on it, and download its results.

    Args:
        out: Where to write.
        server: The server, if one is configured.
        file: The file, and what its inputs are bound to.
        terms: The job's terms, as keyword arguments of the client's methods.
        upload: Options of the upload.
        labels: Tags and note of the job.
        output: Folder for the results, or the artifact's file.
        detach: Return when the job is created.
    """
    from tunefarm_convert import check_file

    check_file(file.path)  # before a farm is started for it
    folder, artifact_name = artifact_file(output)
    _check_output(out, folder, named=output, detach=detach)
    with _client(out, server, detach=detach) as client:
        named: dict[str, Any] = {"tags": labels.tag or (), "note": labels.note or "", **terms}
        client.jobs.check(**named)  # a typo must not cost an upload
        board = Board()
        with view(out, board) as progress:
            live = LiveView(board, progress.update)
            with upload_file(out, file.path) as path:
                uploaded = client.models.upload(
                    path,
                    name=upload.name,
                    shapes=file.shapes,
                    values=file.values,
                    on_progress=live.on_upload,
                )
            note_other_name(out, uploaded, upload.name)
            uploaded = client.models.wait(uploaded.id, on_progress=live.on_model)
            samples_ids = client.samples.upload_all(uploaded.id, file.samples)
            job = client.jobs.create(uploaded.id, samples=samples_ids, **named)
            handle = client.job(job.id)
            if not detach:
                out.note(f"job {job.id}; `tunefarm jobs show {job.id}` shows it, also later")
                _follow(out, handle, live, progress)
        if detach:
            _show_started(out, handle.job)
            return
        try:
            files, report = handle.download(folder, name=artifact_name), handle.report()
        except OSError:  # the folder could be written when the job began
            out.note(
                f"job {job.id} succeeded: `tunefarm jobs artifact {job.id}` downloads its artifact again"
            )
            raise
    _show_results(out, handle.job, files, report)


def _check_output(out: Output, folder: Path, *, named: Path, detach: bool) -> None:
    """Check that results can be written; with `detach`, which writes none, warn if a folder or file was named."""
    if not detach:
        check_folder(folder)
    elif named != Path():
        name = shlex.quote(str(named))
        out.warning(
            f"--detach downloads nothing: `tunefarm jobs artifact JOB -o {name}` does, when the job has ended"
        )


def _check_limits(limits: Mapping[str, float | None]) -> None:
    for option, limit in limits.items():
        if limit is not None and not 0 < limit < math.inf:
            raise InvalidInputError(
                f"{option} must be a number above zero, not {limit:g}", code="invalid-budget"
            )


def _show_results(out: Output, job: Job, files: Download, report: Mapping[str, Any]) -> None:
    if out.json:
        out.data(
            {
                "job": job.raw,
                "artifact": str(files.artifact),
                "report_file": str(files.report),
                "report_page": str(files.report_page),
                "outcomes": report["outcomes"],
                "report": report,
            }
        )
        return
    show_report(out, report)
    out.text()
    out.text(f"{files.artifact}  {quantities.size(files.artifact.stat().st_size)}", style="bold")
    out.text(f"{files.report}")
    out.text(f"{files.report_page}")


@contextmanager
def _client(out: Output, server: Server, *, detach: bool) -> Iterator[Client]:
    """Connect to the configured server or the running farm; else start a farm."""
    from tunefarm.client import Client

    if detach or server.find() is not None:
        with server.connect() as client:
            yield client
        return
    from tunefarm.cli.base.local_farm import started_farm

    out.note("no server is configured: starting a farm for this job")
    with started_farm(out, server.home) as farm, Client(farm.url, farm.api_key) as client:
        yield client


def _follow(out: Output, handle: JobHandle, live: LiveView, progress: View) -> None:
    """Wait for the job; an interrupt cancels or finishes it."""
    from tunefarm.client.handle import raise_for_state

    while True:
        try:
            handle.wait(live.on_job, check=False, on_away=live.on_away)
            break
        except KeyboardInterrupt:
            progress.pause()
            answer = _ask(out)
            if answer is _Answer.CANCEL:
                _cancel(out, handle)
                raise
            if answer is _Answer.FINISH:
                out.note(f"finishing job {handle.id}: compiling the best so far")
                handle.finish()
            progress.resume()
        except BaseException as error:
            if not isinstance(error, Exception):  # SIGTERM, or a closed terminal: cancel the job, too
                progress.pause()
                _cancel(out, handle)
            raise
    raise_for_state(handle.job)


class _Answer(Enum):
    CANCEL = "cancel"
    FINISH = "finish"
    GO_ON = "go on"


def _ask(out: Output) -> _Answer:
    """Ask what to do with the job, if standard input is a terminal; else, and at a second Ctrl-C, it is to be cancelled."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return _Answer.CANCEL
    try:
        out.stderr.print("Cancel the job? Its records stay in the history. ", end="")
        out.stderr.print("[Y]es, [n]o, or [f]inish: compile the best so far: ", end="", markup=False)
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        return _Answer.CANCEL
    if answer in ("f", "finish"):
        return _Answer.FINISH
    return _Answer.GO_ON if answer in ("n", "no") else _Answer.CANCEL


def _cancel(out: Output, handle: JobHandle) -> None:
    from tunefarm.client import ClientError

    out.note(f"cancelling job {handle.id}")
    with suppress(ClientError):  # the farm may be ending as well
        handle.cancel()
        handle.wait(check=False, timeout_sec=_CANCEL_TIMEOUT_SEC, poll_sec=0.5, progress_bar=False)


def _show_started(out: Output, job: Job) -> None:
    if out.json:
        out.data({"job": job.raw})
    else:
        out.text(job.id)
        out.note(f"follow it with: tunefarm jobs watch {job.id}")

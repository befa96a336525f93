"""``tunefarm tune``: the whole job in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.completion import complete_pool
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import (
    MinGain,
    Minutes,
    Patience,
    Priority,
    Seconds,
    Shape,
    Trials,
    as_priority,
    wall_sec_of,
)
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.parsing import parse_shapes
from tunefarm.cli.report import show_report
from tunefarm.cli.views import View, view
from tunefarm.live.board import Board
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Client, ClientError, Job, JobHandle, Model

DEFAULT_MINUTES = 10.0
_CANCEL_TIMEOUT_SEC = 60.0


def register(app: typer.Typer) -> None:
    command(app, "tune")(tune_model)


def tune_model(
    out: Output,
    server: Server,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The network to tune: an ONNX or TFLite file.")
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="What to compile for: `host` (what the devices say they are), "
            '"llvm -mcpu=znver5 -num-cores=8", cuda/sm_90, a TVM tag, or JSON.',
        ),
    ] = "host",
    minutes: Minutes = None,
    seconds: Seconds = None,
    trials: Trials = None,
    patience: Patience = None,
    min_gain: MinGain = None,
    tuner: Annotated[
        str, typer.Option("--tuner", help="Search strategy: xgb, ga, random, grid or evolutionary.")
    ] = "xgb",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    device_key: Annotated[
        str | None,
        typer.Option(
            "--device-key",
            help="Pool of devices that measures; needed where there are several.",
            autocompletion=complete_pool,
        ),
    ] = None,
    priority: Priority = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            help="How large weights are stored: as-model, float16-weights, bfloat16-weights or int8-weights "
            "(those of a quantised model). Arithmetic stays float32; the report says what it costs in accuracy.",
        ),
    ] = None,
    shape: Shape = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call the model; the file's name by default.")
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder for NAME.tunefarm, NAME.report.json and NAME.report.html.",
        ),
    ] = Path(),
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Start the job and go; `tunefarm jobs watch` follows it. Needs a server."
        ),
    ] = False,
) -> None:
    """Tune a network: upload it, search, compile, check, download.

    Uses the server that is configured, or the farm that runs on this machine; where there is neither, it starts a farm
    for the time of the job. Ten minutes of search where no budget is given. Ctrl-C asks, then cancels the job.
    """
    shapes = parse_shapes(shape)
    if not model.is_file():
        raise InvalidInputError(f"{model}: there is no such file", code="no-file")
    wall_sec = wall_sec_of(minutes, seconds)
    if all(limit is None for limit in (wall_sec, trials, patience, min_gain)):
        wall_sec = 60.0 * DEFAULT_MINUTES
    _check_budget(
        {"--seconds/--minutes": wall_sec, "--trials": trials, "--patience": patience, "--min-gain": min_gain}
    )

    terms: dict[str, Any] = {
        "target": target,
        "device_key": device_key,
        "trials": trials,
        "seconds": wall_sec,
        "patience": patience,
        "min_gain": min_gain,
        "tuner": tuner,
        "seed": seed,
        "priority": as_priority(priority),
        "precision": precision,
    }
    with _client(out, server, detach=detach) as client:
        client.jobs.check(**terms)  # a typo shall not cost an upload
        board = Board()
        with view(out, board) as progress:
            uploaded = _upload(client, model, name, shapes, board, progress)
            job = client.jobs.create(uploaded.id, **terms)
            handle = client.job(job.id)
            if not detach:
                _follow(out, handle, board, progress)
        if detach:
            _show_started(out, job)
            return
        got = handle.download(output)
        report = handle.report()
        if out.json:
            out.data(
                {
                    "job": handle.job.raw,
                    "artifact": str(got.artifact),
                    "report_file": str(got.report),
                    "report_page": str(got.report_page),
                    "outcomes": report["outcomes"],
                    "report": report,
                }
            )
            return
    show_report(out, report)
    out.text()
    out.text(f"{got.artifact}  {quantities.size(got.artifact.stat().st_size)}", style="bold")
    out.text(f"{got.report}")
    out.text(f"{got.report_page}")


def _check_budget(limits: Mapping[str, float | None]) -> None:
    for option, limit in limits.items():
        if limit is not None and not limit > 0:
            raise InvalidInputError(f"{option} is {limit:g}, but must be above zero", code="invalid-budget")


@contextmanager
def _client(out: Output, server: Server, *, detach: bool) -> Iterator[Client]:
    """Connect to the server there is, or start a farm."""
    from tunefarm.client import Client

    found = server.find()
    if found is not None or detach:
        with server.connect() as client:
            yield client
        return
    from tunefarm.cli.farm.local_farm import started_farm

    out.note("no server is configured: starting a farm for this job")
    with started_farm(out, server.home) as farm, Client(farm.url, farm.api_key) as client:
        yield client


def _upload(
    client: Client,
    path: Path,
    name: str | None,
    shapes: dict[str, tuple[int, ...]],
    board: Board,
    progress: View,
) -> Model:
    def uploading(sent: int, total: int) -> None:
        board.on_upload(sent, total)
        progress.update()

    def importing(model: Model) -> None:
        board.on_model(model)
        progress.update()

    uploaded = client.models.upload(path, name=name, shapes=shapes, on_progress=uploading)
    return client.models.wait(uploaded.id, on_progress=importing)


def _follow(out: Output, handle: JobHandle, board: Board, progress: View) -> None:
    """Wait for the job; an interrupt cancels it."""
    from tunefarm.client.handle import raise_for_state

    def on_job(job: Job) -> None:
        board.on_job(job)
        progress.update()

    def on_away(_: ClientError) -> None:
        board.on_away()
        progress.update()

    while True:
        try:
            handle.wait(on_job, check=False, on_away=on_away)
            break
        except KeyboardInterrupt:
            progress.pause()
            if _cancel_is_meant(out):
                _cancel(out, handle)
                raise
            progress.resume()
        except BaseException as error:
            if not isinstance(error, Exception):  # told to end: so shall the job
                progress.pause()
                _cancel(out, handle)
            raise
    raise_for_state(handle.job)


def _cancel_is_meant(out: Output) -> bool:
    """Ask once, where somebody can answer; a second Ctrl-C is a yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    try:
        out.stderr.print("Cancel the job? What was measured stays in the history. [Y/n] ", end="")
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        return True
    return answer.strip().lower() not in ("n", "no")


def _cancel(out: Output, handle: JobHandle) -> None:
    from tunefarm.client import ClientError

    out.note(f"cancelling job {handle.id}")
    with suppress(ClientError):  # the farm may be going away as well
        handle.cancel()
        handle.wait(check=False, timeout_sec=_CANCEL_TIMEOUT_SEC, poll_sec=0.5, progress_bar=False)


def _show_started(out: Output, job: Job) -> None:
    if out.json:
        out.data({"job": job.raw})
    else:
        out.text(job.id)
        out.note(f"follow it with: tunefarm jobs watch {job.id}")

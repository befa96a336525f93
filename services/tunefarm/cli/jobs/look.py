"""``tunefarm jobs list|show|compare|tasks|trials|watch``: show and follow jobs. All commands of jobs share its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_job, complete_model, complete_pool, complete_sweep
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit, Tags, Text
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_job, find_model, find_sweep
from tunefarm_text import quantities
from tunefarm_text.job_terms import COMPARED_TIMES, PRECISIONS, RUNTIMES, STOPS, runtime_title

if TYPE_CHECKING:
    from tunefarm.client import ComparedKernel, Job

app = group("jobs", "Show, follow, change and cancel tuning jobs, and get their results.")
JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB_ID",
        help="The job: its id (job_…), the first or last characters of it, or its model's name.",
        autocompletion=complete_job,
    ),
]


class JobSort(StrEnum):
    """The orders of `tunefarm jobs list`."""

    NEWEST = "newest"
    OLDEST = "oldest"
    CHANGED = "changed"
    MODEL = "model"
    STATE = "state"
    TRIALS = "trials"
    LATENCY = "latency"
    SPEEDUP = "speedup"
    RUNTIME = "runtime"


@command(app, "list")
def list_jobs(
    out: Output,
    server: Server,
    state: Annotated[str | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL_ID",
            help="Only jobs of this model: its id, a part of it, or its name.",
            autocompletion=complete_model,
        ),
    ] = None,
    device_key: Annotated[
        str | None,
        typer.Option("--device-key", help="Only jobs on this pool.", autocompletion=complete_pool),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="SWEEP_ID",
            help="Only jobs of this sweep: its id, or a part of it.",
            autocompletion=complete_sweep,
        ),
    ] = None,
    tag: Tags = None,
    search: Text = None,
    sort: Annotated[
        JobSort,
        typer.Option(
            "--sort",
            help="The best first: `latency`, `speedup` (over untuned), `runtime` (over the fastest other runtime that was timed).",
        ),
    ] = JobSort.NEWEST,
    limit: Limit = 50,
) -> None:
    """List the jobs, newest first unless --sort says otherwise."""
    with server.connect() as client:
        model_id = None if model is None else find_model(client, model)
        # Servers of older releases know no order: they sort by age.
        order = None if sort is JobSort.NEWEST else sort.value
        matching = client.jobs.all(
            state=state,
            model_id=model_id,
            device_key=device_key,
            sweep_id=None if sweep is None else find_sweep(client, sweep),
            tags=tag or (),
            text=search,
            order=order,
        )
        jobs = out.first(matching, limit)
    # Targets are long, and mostly the same: they are shown where they tell jobs apart, or name libraries.
    texts = {job.target_text for job in jobs}
    tell = len(texts) > 1 or any(job.target_text != job.target_key for job in jobs)
    differ = any(job.precision != PRECISIONS[0] for job in jobs)
    out.items(
        jobs,
        {
            "job": lambda job: job.id,
            "state": lambda job: job.state,
            "model": lambda job: job.model_name or job.model_id,
            **({"target": lambda job: job.target_text} if tell else {}),
            **({"precision": lambda job: job.precision} if differ else {}),
            "pool": lambda job: job.device_key,
            ">trials": lambda job: job.trials,
            ">failed": lambda job: job.failures,
            ">latency": lambda job: job.best_text,
            ">speed-up over untuned": lambda job: job.over_untuned_text,
            ">speed-up over other runtimes": lambda job: job.over_runtime_text,
            "tags": lambda job: ", ".join(job.tags),
            "created": lambda job: quantities.local_time(job.created_at),
        },
        optional=("tags", ">failed", "pool", "target", ">speed-up over untuned"),
    )


@command(app, "show")
def show_job(out: Output, server: Server, job_id: JobId) -> None:
    """Show one job."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = client.jobs.get(job_id)
    show_state(out, job)


@command(app, "compare")
def compare_jobs(
    out: Output,
    server: Server,
    job_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB_ID...",
            help="Two to six jobs: their ids, or the first or last characters of them.",
            autocompletion=complete_job,
        ),
    ],
) -> None:
    """Show jobs side by side: their results, and their kernels, the largest differences first."""
    with server.connect() as client:
        comparison = client.jobs.compare([find_job(client, text) for text in job_ids])
    if out.json:
        out.data(comparison.raw)
        return
    jobs = comparison.jobs
    beside = [name for name in RUNTIMES if name != "onnxruntime" and any(name in job.ratios for job in jobs)]
    out.table(
        (
            "job",
            "model",
            "devices",
            "precision",
            "state",
            ">latency",
            ">speed-up over ONNX Runtime",
            *(f">speed-up over {runtime_title(name)}" for name in beside),
            ">speed-up over untuned",
            ">trials",
            ">searched",
        ),
        (
            (
                job.id,
                job.model_name,
                job.device_key,
                job.precision,
                job.state,
                job.latency_text,
                *(job.ratio_text(name) for name in ("onnxruntime", *beside, "untuned")),
                job.trials,
                quantities.duration(job.tuned_sec),
            )
            for job in jobs
        ),
    )
    kernels = comparison.kernels
    shared = [kernel for kernel in kernels if kernel.is_shared]
    if shared:
        out.table(
            ("kernel", *(f">…{job.id[-6:]}" for job in jobs)),
            ((kernel.name, *_kernel_times(kernel)) for kernel in shared),
        )
        out.text(COMPARED_TIMES)
    if len(shared) < len(kernels):
        out.text(
            f"{quantities.plural(len(kernels) - len(shared), 'kernel')} that only one of the jobs has: not compared (--json lists all)."
        )


def _kernel_times(kernel: ComparedKernel) -> list[str]:
    return [
        "not measured"
        if sec is None and weight is not None
        else quantities.latency(sec) + (f" × {weight}" if sec is not None and (weight or 1) > 1 else "")
        for sec, weight in zip(kernel.best_sec, kernel.weights, strict=True)
    ]


@command(app, "tasks")
def list_job_tasks(out: Output, server: Server, job_id: JobId) -> None:
    """List a job's kernels: the progress of the search, and the best config against the device's roofline.

    The bound is the roofline: the device's peak, or the limit of its bandwidth if that is lower. Shares are of an inference of the
    artifact; while there is none, of the sum of the best times.
    """
    with server.connect() as client:
        job_id = find_job(client, job_id)
        tasks = client.jobs.tasks(job_id)
    out.items(
        tasks,
        {
            ">#": lambda task: task.position,
            "kernel": lambda task: task.name,
            ">calls": lambda task: task.weight,
            ">trials": lambda task: task.trials,
            ">failed": lambda task: task.failures,
            ">best": lambda task: quantities.latency(task.best_cost_sec),
            ">untuned": lambda task: quantities.doubted_latency(
                task.untuned_cost_sec, is_measured=True, is_disturbed=task.disturbed
            ),
            ">share": lambda task: quantities.percent(task.share),
            ">rate": lambda task: quantities.rate(
                task.roofline.flops_per_sec if task.roofline else None, "FLOP/s"
            ),
            ">of peak": lambda task: quantities.percent(
                task.roofline.share_of_peak if task.roofline else None
            ),
            ">of bound": lambda task: quantities.percent(
                task.roofline.share_of_bound if task.roofline else None
            ),
            "outcomes": lambda task: _counts(task.outcomes),
        },
    )
    if not out.json and any(task.untuned_cost_sec is not None for task in tasks):
        out.text(
            "Best time, rate and shares of peak and bound are from the search; untuned time and share were measured with the artifact."
        )


@command(app, "trials")
def list_trials(
    out: Output,
    server: Server,
    job_id: JobId,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed trials.")] = False,
    limit: Limit = 1000,
) -> None:
    """List a job's trials and their outcomes. With --json, one trial a line."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        matching = (trial for trial in client.jobs.trials(job_id) if not failed or trial.outcome != "ok")
        trials = out.each_of_first(matching, limit) if out.json else out.first(matching, limit)
        out.items(
            trials,
            {
                ">kernel": lambda trial: trial.position,
                ">round": lambda trial: trial.round,
                "outcome": lambda trial: trial.outcome,
                ">time per call": lambda trial: quantities.latency(trial.cost_sec),
                "measured": lambda trial: quantities.local_time(trial.measured_at),
                "message": lambda trial: trial.message,
            },
            json_lines=True,
        )
    if not out.json:
        out.text(_counts(dict(Counter(trial.outcome for trial in trials).most_common())) or "no trials")


@command(app, "watch")
def watch_job(out: Output, server: Server, job_id: JobId) -> None:
    """Follow a job until it ends. Ctrl-C stops watching, not the job."""
    from tunefarm.cli.progress_view import view
    from tunefarm.client.handle import raise_for_state
    from tunefarm.live.board import Board
    from tunefarm.live.waiting import LiveView

    board = Board()
    with server.connect() as client:
        job_id = find_job(client, job_id)
        handle = client.job(job_id)
        board.on_model(client.models.get(handle.job.model_id))
        with view(out, board) as progress:
            live = LiveView(board, progress.update)
            job = handle.wait(live.on_job, check=False, on_away=live.on_away)
    show_state(out, job)
    raise_for_state(job)


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())


def _leaves_out_other_shapes(job: Job) -> bool:
    return job.raw.get("options", {}).get("other_shapes") is False


def show_state(out: Output, job: Job) -> None:
    """Print one job."""
    if out.json:
        out.data(job.raw)
        return
    out.text(f"{job.id}  {job.state}", style="bold")
    rows = [
        ("model", f"{job.model_name} ({job.model_id})" if job.model_name else job.model_id),
        ("target", job.target_text),
        ("devices", job.device_key),
        ("tuner", f"{job.tuner}, seed {job.seed}"),
        ("precision", job.precision),
        *(("other shapes", "no code for them") for _ in range(_leaves_out_other_shapes(job))),
        *(
            ("also timed", ", ".join(job.raw["options"]["baselines"]))
            for _ in job.raw.get("options", {}).get("baselines", ())[:1]
        ),
        ("budget", quantities.budget(job.budget)),
        (
            "searched",
            f"{quantities.duration(job.tuned_sec)}, {quantities.plural(job.trials, 'trial')}, {job.failures} failed",
        ),
        ("time left", quantities.duration(job.eta_sec)),
        ("kernels", job.kernels_text),
        ("latency", job.latency_text),
        ("over untuned", job.over_untuned_text),
        ("over others", job.over_runtime_text),
        ("kernels' sum", quantities.latency(job.best_latency_sec)),
        ("priority", f"{job.priority}"),
        ("waiting", job.waiting or quantities.NONE),
        ("search ended", STOPS.get(str(job.stop_reason), job.stop_reason or quantities.NONE)),
        ("created", quantities.local_time(job.created_at)),
        ("ended", quantities.local_time(job.finished_at)),
        *(("tags", ", ".join(job.tags)) for _ in job.tags[:1]),
        *(("note", line) for line in job.note.splitlines()),
    ]
    for name, value in rows:
        out.text(f"{name:<12} {value}")
    if job.error:
        out.text(f"{job.error.code}: {job.error.message}", style="red")

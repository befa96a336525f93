"""``tunefarm jobs``: look at tuning jobs, follow them, cancel them, get their results."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_job
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import Limit
from tunefarm.cli.base.output import Output
from tunefarm.cli.report import show_report
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import ClientError, Job, JobTask

app = group("jobs", "Look at tuning jobs, follow them, cancel them, get their results.")

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The job, job_…", autocompletion=complete_job)]
Folder = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the file goes.")]


@command(app, "list")
def list_jobs(
    out: Output,
    server: Server,
    state: Annotated[str | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    limit: Limit = 50,
) -> None:
    """List the jobs, newest first."""
    with server.connect() as client:
        jobs = list(islice(client.jobs.all(state=state), limit))
    if out.json:
        out.data([job.raw for job in jobs])
        return
    out.table(
        ("job", "state", "model", "target", "devices", "tuner", ">trials", ">failed", ">best", "created"),
        (
            (
                job.id,
                job.state,
                job.model_id,
                job.target_key,
                job.device_key,
                job.tuner,
                job.trials,
                job.failures,
                quantities.latency(job.best_latency_sec),
                quantities.local_time(job.created_at),
            )
            for job in jobs
        ),
    )


@command(app, "show")
def show_job(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """Show one job."""
    with server.connect() as client:
        job = client.jobs.get(job_id)
    show_state(out, job)


@command(app, "cancel")
def cancel_job(
    out: Output,
    server: Server,
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")] = True,
) -> None:
    """Cancel a job. What it measured stays in the history."""
    with server.connect() as client:
        job = client.jobs.cancel(job_id)
        if wait:
            job = client.job(job_id).wait(check=False, progress_bar=False)
    show_state(out, job)


@command(app, "tasks")
def list_job_tasks(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """List a job's kernels, how far the search is with each, and how near its best is to what the device can do.

    The bound is the roofline: the device's peak, or what its bandwidth allows where that is less.
    """
    with server.connect() as client:
        tasks = client.jobs.tasks(job_id)
    if out.json:
        out.data([task.raw for task in tasks])
        return
    out.table(
        (
            ">#",
            "kernel",
            ">calls",
            ">trials",
            ">failed",
            ">best",
            ">untuned",
            ">share",
            ">rate",
            ">of peak",
            ">of bound",
            "outcomes",
        ),
        (
            (
                task.position,
                task.name,
                task.weight,
                task.trials,
                task.failures,
                quantities.latency(task.best_cost_sec),
                quantities.latency(task.untuned_cost_sec),
                _share(task, tasks),
                quantities.rate(task.roofline.flops_per_sec if task.roofline else None, "FLOP/s"),
                quantities.percent(task.roofline.share_of_peak if task.roofline else None),
                quantities.percent(task.roofline.share_of_bound if task.roofline else None),
                ", ".join(f"{count} {outcome}" for outcome, count in task.outcomes.items()),
            )
            for task in tasks
        ),
    )


@command(app, "trials")
def list_trials(
    out: Output,
    server: Server,
    job_id: JobId,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    limit: Limit = 1000,
) -> None:
    """List a job's trials and how each ended; as JSON, one a line."""
    with server.connect() as client:
        chosen = (t for t in client.jobs.trials(job_id) if not failed or t.outcome != "ok")
        if out.json:
            for trial in islice(chosen, limit):
                out.data(trial.raw)
            return
        trials = list(islice(chosen, limit))
    out.table(
        (">kernel", ">round", "outcome", ">time per call", "measured", "message"),
        (
            (
                t.position,
                t.round,
                t.outcome,
                quantities.latency(t.cost_sec),
                quantities.local_time(t.measured_at),
                t.message,
            )
            for t in trials
        ),
    )
    counts = Counter(t.outcome for t in trials)
    out.text(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "no trials")


@command(app, "watch")
def watch_job(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """Follow a job until it ends. Ctrl-C stops watching, not the job."""
    from tunefarm.cli.views import view
    from tunefarm.client.handle import raise_for_state
    from tunefarm.live.board import Board

    board = Board()
    with server.connect() as client:
        handle = client.job(job_id)
        board.on_model(client.models.get(handle.job.model_id))
        with view(out, board) as progress:

            def on_job(job: Job) -> None:
                board.on_job(job)
                progress.update()

            def on_away(_: ClientError) -> None:
                board.on_away()
                progress.update()

            job = handle.wait(on_job, check=False, on_away=on_away)
    show_state(out, job)
    raise_for_state(job)


@command(app, "artifact")
def get_artifact(
    out: Output,
    server: Server,
    job_id: JobId,
    folder: Folder = Path(),
    name: Annotated[
        str | None, typer.Option("--name", help="The file's name; the server's by default.")
    ] = None,
) -> None:
    """Download the artifact of a job that succeeded."""
    with server.connect() as client:
        path = client.jobs.download(job_id, folder, name=name)
    if out.json:
        out.data({"artifact": str(path), "size_bytes": path.stat().st_size})
    else:
        out.text(f"{path}  {quantities.size(path.stat().st_size)}")


@command(app, "report")
def get_report(
    out: Output,
    server: Server,
    job_id: JobId,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write it as a page: one file, to be read and printed anywhere."
        ),
    ] = None,
) -> None:
    """Show the report of a job that has ended: latencies, kernels, checks, coverage, trials, and how to do it again."""
    with server.connect() as client:
        if html is not None:
            page = client.jobs.save_report(job_id, html)
            if out.json:
                out.data({"report_page": str(page)})
            else:
                out.text(f"{page}")
            return
        report = client.jobs.report(job_id)
    if out.json:
        out.data(report)
    else:
        show_report(out, report)


def _share(task: JobTask, tasks: tuple[JobTask, ...]) -> str:
    """Return how much of the whole model's time a kernel takes."""
    counting = (each for each in tasks if each.counts and each.best_cost_sec is not None)
    total = sum(each.weight * (each.best_cost_sec or 0.0) for each in counting)
    if task.best_cost_sec is None or not task.counts or not total:
        return quantities.NONE
    return f"{task.weight * task.best_cost_sec / total:.0%}"


def show_state(out: Output, job: Job) -> None:
    """Print one job."""
    if out.json:
        out.data(job.raw)
        return
    out.text(f"{job.id}  {job.state}", style="bold")
    names = {
        "trials": "{:g} trials",
        "wall_sec": "{:g} s",
        "patience_trials": "{:g} trials without a better kernel",
        "min_gain_per_min": "less than {:.2%} to gain per minute",
    }
    limits = [names[name].format(limit) for name, limit in job.budget.items() if limit and name in names]
    rows = [
        ("model", job.model_id),
        ("target", job.target_key),
        ("devices", job.device_key),
        ("tuner", f"{job.tuner}, seed {job.seed}"),
        ("precision", str(job.raw.get("options", {}).get("precision", "as-model"))),
        ("budget", " or ".join(limits)),
        ("searched", f"{quantities.duration(job.tuned_sec)}, {job.trials} trials, {job.failures} failed"),
        ("time left", quantities.duration(job.eta_sec)),
        ("kernels", f"{job.progress.tasks_with_record} of {job.progress.tasks_total} measured"),
        ("best", f"{quantities.latency(job.best_latency_sec)} (sum over kernels)"),
        ("priority", f"{job.priority}"),
        ("waiting", job.waiting or quantities.NONE),
        ("stopped by", job.stop_reason or quantities.NONE),
        ("created", quantities.local_time(job.created_at)),
        ("ended", quantities.local_time(job.finished_at)),
    ]
    for name, value in rows:
        out.text(f"{name:<11} {value}")
    if job.error:
        out.text(f"{job.error.code}: {job.error.message}", style="red")

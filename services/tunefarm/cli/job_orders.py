"""``tunefarm jobs change|pause|resume|retry``: what people tell jobs that are on record."""

from __future__ import annotations

from tunefarm.cli import jobs
from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import (
    MinGain,
    Minutes,
    Patience,
    Priority,
    Seconds,
    Trials,
    as_priority,
    wall_sec_of,
)
from tunefarm.cli.base.output import Output
from tunefarm.cli.jobs import JobId, show_state

app = jobs.app  # these come on top of what is there


@command(app, "change")
def change_job(
    out: Output,
    server: Server,
    job_id: JobId,
    minutes: Minutes = None,
    seconds: Seconds = None,
    trials: Trials = None,
    patience: Patience = None,
    min_gain: MinGain = None,
    priority: Priority = None,
) -> None:
    """Change the budget or the priority of a job that runs. What is not named stays as it is.

    Limits are for the whole job, and count from the end of its round on. A search that a limit has ended goes on if that
    limit is raised, as long as the job is not compiled.
    """
    with server.connect() as client:
        job = client.jobs.change(
            job_id,
            trials=trials,
            seconds=wall_sec_of(minutes, seconds),
            patience=patience,
            min_gain=min_gain,
            priority=as_priority(priority),
        )
    show_state(out, job)


@command(app, "pause")
def pause_job(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """Pause a job. Its running round ends within seconds; no budget is spent until it is resumed."""
    with server.connect() as client:
        job = client.jobs.pause(job_id)
    show_state(out, job)


@command(app, "resume")
def resume_job(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """Let a paused job go on."""
    with server.connect() as client:
        job = client.jobs.resume(job_id)
    show_state(out, job)


@command(app, "retry")
def retry_job(
    out: Output,
    server: Server,
    job_id: JobId,
) -> None:
    """Let a failed job go on with what failed. Nothing that was done is done again."""
    with server.connect() as client:
        job = client.jobs.retry(job_id)
    show_state(out, job)

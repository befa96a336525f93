"""``tunefarm jobs cancel|change|pause|resume|retry``: change jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import ChangeOptions
from tunefarm.cli.base.output import Output
from tunefarm.cli.jobs.look import JobId, app, show_state


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


@command(app, "change")
def change_job(out: Output, server: Server, job_id: JobId, changes: ChangeOptions) -> None:
    """Change the budget or the priority of a job that runs. Terms that are not named stay as they are.

    Limits are for the whole job, and count from the end of its round on. A search that a limit has ended goes on if that
    limit is raised, as long as the job is not compiled.
    """
    with server.connect() as client:
        job = client.jobs.change(job_id, **changes.terms())
    show_state(out, job)


@command(app, "pause")
def pause_job(out: Output, server: Server, job_id: JobId) -> None:
    """Pause a job. Its running round ends within seconds; no budget is spent until it is resumed."""
    with server.connect() as client:
        job = client.jobs.pause(job_id)
    show_state(out, job)


@command(app, "resume")
def resume_job(out: Output, server: Server, job_id: JobId) -> None:
    """Let a paused job go on."""
    with server.connect() as client:
        job = client.jobs.resume(job_id)
    show_state(out, job)


@command(app, "retry")
def retry_job(out: Output, server: Server, job_id: JobId) -> None:
    """Let a failed job go on with what failed. Nothing that was done is done again."""
    with server.connect() as client:
        job = client.jobs.retry(job_id)
    show_state(out, job)

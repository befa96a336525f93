"""``tunefarm jobs cancel|finish|change|pause|resume|retry``: change jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.options import ChangeOptions, LabelChanges
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_job
from tunefarm.cli.jobs.look import JobId, app, show_state

if TYPE_CHECKING:
    from tunefarm.client import Client, Job

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")]


@command(app, "cancel")
def cancel_job(
    out: Output,
    server: Server,
    job_id: JobId,
    wait: Wait = True,
) -> None:
    """Cancel a job, or the measurement of its artifact if it has ended. Its records stay in the history."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = _after(client, client.jobs.cancel(job_id), wait=wait)
    show_state(out, job)


@command(app, "finish")
def finish_job(
    out: Output,
    server: Server,
    job_id: JobId,
    wait: Wait = True,
) -> None:
    """End a job's search now, and compile the best so far; `tunefarm jobs artifact` downloads it then."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = _after(client, client.jobs.finish(job_id), wait=wait)
    show_state(out, job)


def _after(client: Client, job: Job, *, wait: bool) -> Job:
    """Return the job once it has ended, or as it is now."""
    return client.job(job.id).wait(check=False, progress_bar=False) if wait else job


@command(app, "change")
def change_job(
    out: Output, server: Server, job_id: JobId, changes: ChangeOptions, labels: LabelChanges
) -> None:
    """Change the budget or the priority of a running job, or the tags and the note of any job. All else stays as it is.

    Limits are for the whole job and apply after its current round. If a limit has ended the search, raising it
    continues the search, unless compiling has begun.
    """
    with server.connect() as client:
        job_id = find_job(client, job_id)
        labelled = labels.changes(lambda: client.jobs.get(job_id).tags)
        job = client.jobs.change(job_id, **changes.terms(), **labelled)
    show_state(out, job)


@command(app, "pause")
def pause_job(out: Output, server: Server, job_id: JobId) -> None:
    """Pause a job. Its current round ends within seconds. A paused job spends no budget."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = client.jobs.pause(job_id)
    show_state(out, job)


@command(app, "resume")
def resume_job(out: Output, server: Server, job_id: JobId) -> None:
    """Resume a paused job."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = client.jobs.resume(job_id)
    show_state(out, job)


@command(app, "retry")
def retry_job(out: Output, server: Server, job_id: JobId) -> None:
    """Retry the failed step of a failed job. Completed work is not repeated."""
    with server.connect() as client:
        job_id = find_job(client, job_id)
        job = client.jobs.retry(job_id)
    show_state(out, job)

"""``tunefarm jobs cancel|finish|change|pause|resume|retry|again``: change jobs, or run them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefarm.cli.base import exit_codes
from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.edge import Exit, describe
from tunefarm.cli.base.options import NO_CHANGE, ChangeOptions, LabelChanges
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_job
from tunefarm.cli.jobs.look import JobId, app, show_state
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

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
        changed = {**changes.terms(), **labels.changes(lambda: client.jobs.get(job_id).tags)}
        if all(value is None for value in changed.values()):
            raise InvalidInputError(NO_CHANGE, code="invalid-request")
        job = client.jobs.change(job_id, **changed)
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


@command(app, "again")
def run_again(
    out: Output,
    server: Server,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", help="Jobs that have ended, as for `tunefarm jobs show`."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="TAG", help="All jobs with this tag that have ended. Can be given several times."
        ),
    ] = None,
    only_if_changed: Annotated[
        bool,
        typer.Option(
            "--only-if-changed",
            help="Only those whose newest artifact was made by other versions of TVM and tunefarm than the farm has.",
        ),
    ] = False,
) -> None:
    """Run jobs again, with their models and terms: by a schedule, or when the compiler has changed.

    cron can run this command as often as you like: if a job was run again before, only its newest run is repeated, and a job that is
    under way on the same terms is not started twice. The command prints the ids of the jobs that are then under way. If a job cannot
    run again, it warns, goes on with the others, and fails at the end.
    """
    if bool(jobs) == bool(tag):
        raise InvalidInputError("name jobs, or a tag with --tag", code="invalid-request")
    with server.connect() as client:
        ids = [find_job(client, text) for text in jobs or ()] if jobs else _latest_with(client, tag or ())
        answers, refused = _run_all_again(out, client, ids, only_if_changed=only_if_changed)
    under_way = [job for job in answers.values() if not job.is_finished]
    unchanged = [job for job in answers.values() if job.is_finished]
    if out.json:
        out.data(
            {
                "jobs": [job.raw for job in under_way],
                "unchanged": [job.id for job in unchanged],
                "refused": refused,
            }
        )
    else:
        for line in [job.id for job in under_way] or ["no job was started"]:
            out.text(line)
    if tag and not ids:
        out.warning(
            f"no job with {_tags_words(tag)} has ended: `tunefarm jobs list --tag {tag[0]}` lists all jobs with it"
        )
    if unchanged:
        out.note(
            f"{quantities.plural(len(unchanged), 'artifact')} made by the farm's present versions: {', '.join(job.id for job in unchanged)}"
        )
    if refused:
        raise Exit(exit_codes.FAILED)


def _run_all_again(
    out: Output, client: Client, job_ids: Sequence[str], *, only_if_changed: bool
) -> tuple[dict[str, Job], list[dict[str, Any]]]:
    """Run jobs again; return the answers by their ids, and those that were refused, with the reasons.

    A refused job does not end the others; a server that cannot be reached does.
    """
    from tunefarm.client.errors import ClientError, UnavailableError

    answers: dict[str, Job] = {}
    refused: list[dict[str, Any]] = []
    for job_id in job_ids:
        try:
            job = client.jobs.again(job_id, only_if_changed=only_if_changed)
        except ClientError as error:
            out.warning(f"{job_id}: {error.detail}")
            refused.append({"job": job_id, **describe(error)})
            if isinstance(error, UnavailableError) and error.status is None:
                break
        else:
            answers[job.id] = job
    return answers, refused


def _tags_words(tags: Sequence[str]) -> str:
    return f"the {'tag' if len(tags) == 1 else 'tags'} {' and '.join(tags)}"


def _latest_with(client: Client, tags: Sequence[str]) -> list[str]:
    """Return the newest job with the tags of each that was run again and again; those that only compile another's records are none."""
    newest: dict[str, str] = {}
    for job in client.jobs.all(tags=tags):
        options = job.raw.get("options", {})
        if job.is_finished and "of" not in options:
            newest.setdefault(str(options.get("again") or job.id), job.id)
    return list(newest.values())

"""A job as a row of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_api.web.jobs.job_view import (
    Speedup,
    device_of,
    measured_speedup,
    progress_words,
    speedup_over_runtime,
    speedup_so_far,
)
from tunefarm_app.jobs.progress import TimeLeft, share_done, time_left
from tunefarm_app.leases.device_turns import why_waiting
from tunefarm_app.report.numbers import Latency, latency_of
from tunefarm_db.repositories.farm.overview import ListedJob
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One line of the list."""

    job: Job
    model_name: str
    waiting: str | None
    device: str | None
    share: float | None
    done_words: str
    left: TimeLeft | None
    latency: Latency
    speedup: Speedup | None
    over_runtime: Speedup | None

    @property
    def why(self) -> str:
        """Why it failed, if it did."""
        return str((self.job.error or {}).get("message", ""))


def job_lines(repos: Repositories, jobs: Sequence[ListedJob]) -> list[JobLine]:
    """Return the lines, in order."""
    ids = [listed.job.id for listed in jobs]
    steps = repos.steps.open_of(ids)
    now = repos.now()
    return [
        JobLine(
            job=listed.job,
            model_name=listed.model_name,
            waiting=why_waiting(listed.job, steps.get(listed.job.id), now),
            device=device_of(listed.job),
            share=share_done(listed.job),
            done_words=progress_words(listed.job),
            left=time_left(listed.job),
            latency=latency_of(listed.job),
            speedup=measured_speedup(listed.job) or speedup_so_far(repos.jobs.tasks(listed.job.id)),
            over_runtime=speedup_over_runtime(listed.job),
        )
        for listed in jobs
    ]

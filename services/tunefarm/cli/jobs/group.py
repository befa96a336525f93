"""``tunefarm jobs``: its group, and what its commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import group
from tunefarm.cli.base.completion import complete_job
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import Job

app = group("jobs", "Look at tuning jobs, follow them, cancel them, get their results.")

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="The job, job_…", autocompletion=complete_job)]


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

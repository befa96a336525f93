"""The form that creates a job: its choices, and how it is read. That of a sweep has the same terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunefarm_api.web.forms import Form, number_of, whole_number_of
from tunefarm_app.jobs.submit import JobRequest
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import UP_STATES
from tunefarm_text.job_terms import BASELINES, DEFAULT_TUNER
from tunefarm_tuning.core.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of devices. `trials_per_min` is how fast its last jobs searched; None where there were none."""

    name: str
    online: int
    devices: int
    trials_per_min: float | None


BEFORE: Form = {
    "pool": "",
    "minutes": "10",
    "search_minutes": "",
    "trials": "",
    "priority": "normal",
    "samples": "",
    "stop_early": "",
    "target": "",
    "tuner": DEFAULT_TUNER,
    "precision": "",
    "max_error": "",
    "seed": "0",
    "no_other_shapes": "",
}
"""The form's values before anybody fills it in."""


def pools_of(repos: Repositories) -> list[Pool]:
    """Return the pools that a job can be sent to, those with devices online first."""
    pools = []
    names = repos.devices.keys()
    for name in names:
        devices = repos.devices.in_pool(name)
        rate = repos.overview.search_rate(name)
        pools.append(
            Pool(
                name=name,
                online=sum(device.state in UP_STATES for device in devices),
                devices=len(devices),
                trials_per_min=None if rate is None else 60 * rate,
            )
        )
    return sorted(pools, key=lambda pool: (-min(pool.online, 1), pool.name))


def request_of(model_id: str, form: Form) -> JobRequest:
    """Return what the form asks for.

    Raises:
        InvalidInputError: If a number is none, or there is no limit.
    """
    samples = [form["samples"]] if form.get("samples") else []
    return JobRequest(model_id=model_id, samples=samples, **terms_of(form))


def baselines_in(form: Form) -> list[str]:
    """Return the other runtimes that a form names."""
    return [name for name in BASELINES if f"baseline-{name}" in form]


def terms_of(form: Form) -> dict[str, Any]:
    """Return the terms that a form has, of a job or of a sweep.

    Raises:
        InvalidInputError: If a number is none, or there is no limit.
    """
    minutes, trials = number_of(form, "minutes"), whole_number_of(form, "trials")
    search_minutes = number_of(form, "search_minutes")
    search = "no_search" not in form
    if search and not (minutes or search_minutes or trials):
        raise InvalidInputError("set a limit: minutes, trials, or both", code="invalid-budget")
    budget = JobBudget(
        job_sec=60.0 * minutes if minutes else None,
        wall_sec=60.0 * search_minutes if search_minutes else None,
        trials=trials or None,
        min_gain_per_min=0.01 if form.get("stop_early") else None,
    )
    return {
        "budget": budget if search else None,
        "search": search,
        "device_key": form.get("pool") or None,
        "target": form.get("target", "").strip() or None,
        "tuner": form.get("tuner") or DEFAULT_TUNER,
        "seed": whole_number_of(form, "seed"),
        "priority": form.get("priority") or 0,
        "precision": form.get("precision") or None,
        "max_error": number_of(form, "max_error") if form.get("max_error", "").strip() else None,
        "other_shapes": "no_other_shapes" not in form,
        "baselines": baselines_in(form),
    }

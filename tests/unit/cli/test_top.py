"""The output of `tunefarm top`, from given values."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tunefarm.cli.farm_snapshot import DeviceLine, FarmSnapshot, JobLine, Rate
from tunefarm.cli.top import draw
from tunefarm.client import Device, Job


def job(name: str, state: str = "tuning", **rest: Any) -> Job:
    return Job.read({"id": name, "model_id": "mdl_1", "state": state, "budget": {"trials": 100}, **rest})


def line(job: Job, *devices: str, rate: float | None = None) -> JobLine:
    return JobLine(job=job, model="lenet", devices=devices, trials_per_min=rate)


def device(name: str, **rest: Any) -> DeviceLine:
    read = Device.read({"id": f"dev_{name}", "name": name, "state": "online", **rest})
    return DeviceLine(device=read, model="lenet" if read.job_id else None)


def glance(*jobs: JobLine, devices: tuple[DeviceLine, ...] = (), **rest: Any) -> FarmSnapshot:
    values: dict[str, Any] = {"ended": (), "is_cut": False, **rest}
    return FarmSnapshot(url="http://farm", time=1.8e9, jobs=jobs, devices=devices, **values)


def shown(
    glance: FarmSnapshot, *, width: int = 160, height: int | None = None, trouble: str = ""
) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, markup=False, highlight=False, emoji=False)
    console.print(draw(glance, width=width, height=height, trouble=trouble))
    return [" ".join(text.split()) for text in file.getvalue().splitlines() if text.strip()]


def test_the_queue_is_counted() -> None:
    waits = job("w", waiting="waiting for its turn")
    view = glance(
        line(job("a"), rate=90.0),
        line(waits),
        line(job("q", "queued")),
        line(job("p", "paused", waiting="x")),
    )
    assert view.queue == {"at_work": 1, "waiting": 2, "paused": 1}
    assert view.trials_per_min == 90.0
    assert view.as_json()["jobs"][1]["waiting"] == "waiting for its turn"


def test_everything_is_shown() -> None:
    tuned = job("job_a", trials=25, failures=2, best_latency_sec=0.0081)
    leased = device("dev-1", state="leased", job_id="job_a", lease_owner="step:stp_1")
    lines = shown(
        glance(
            line(tuned, "dev-1", rate=130.4),
            line(job("job_b", waiting="waiting for its turn")),
            devices=(
                leased,
                device("dev-2", state="leased", lease_owner="calibration:w"),
                device("dev-3", state="quarantined", reason="it computes wrongly\x1b[2J"),
            ),
            ended=(line(job("job_c", "succeeded", trials=7)),),
        )
    )
    assert (
        "jobs: 1 at work, 1 waiting, 0 paused · devices: 2 of 3 at work · 130 trials per minute" in lines[0]
    )
    text = "\n".join(lines)
    assert "job_a lenet tuning ██░░░░░░░░ 25 % 25 2 130 8.1 ms (estimate) dev-1" in text
    assert "job_b lenet tuning ░░░░░░░░░░ 0.0 % 0 0 – – waiting for its turn" in text
    assert "job_c lenet succeeded ██████████ 100 %" in text
    assert "dev-1 leased job_a lenet" in text
    assert "dev-2 leased calibration" in text
    assert "dev-3 quarantined it computes wrongly\\x1b[2J" in text


def test_a_row_is_a_line_however_narrow() -> None:
    long = job("job_" + "x" * 26, waiting="waiting for its turn on a device " * 5)
    for width in (40, 80, 120, 200):
        lines = shown(glance(line(long), devices=(device("d"),)), width=width)
        assert sum("job_" in text for text in lines) == 1
    assert "job_" + "x" * 26 in "\n".join(shown(glance(line(long)), width=80))


def test_it_fits_the_terminal() -> None:
    many = glance(
        *[line(job(f"job_{n}")) for n in range(50)], devices=tuple(device(f"dev-{n}") for n in range(30))
    )
    lines = shown(many, height=24)
    assert len(lines) <= 24
    assert "… and 44 more jobs" in lines
    assert "… and 25 more devices" in lines
    few = glance(*[line(job(f"job_{n}")) for n in range(50)], devices=(device("dev-0"),), is_cut=True)
    assert "… and more jobs" in shown(few, height=40)
    assert "cannot reach it; trying again" in shown(few, trouble="cannot reach it")


def test_rates() -> None:
    searching = job("a", trials=30, tuned_sec=60.0)
    rate = Rate()
    rate.note(30, 100.0)
    assert rate.per_min(searching) == 30.0, "over the search: nobody watched yet"
    rate.note(60, 110.0)
    assert rate.per_min(searching) == 30.0
    rate.note(90, 130.0)
    assert rate.per_min(searching) == 120.0
    for second in range(140, 400, 10):
        rate.note(90, float(second))
    assert rate.per_min(searching) == 0.0, "what is long ago does not count"
    fresh = Rate()
    fresh.note(0, 0.0)
    assert fresh.per_min(job("a")) is None

"""When a search compiles the network with its kernels so far, and when it times that network: rules, and what follows from a timing.

A draft step compiles (`tunefarm_app.jobs.drafts`), and a tuning step times, under its own lease of the device, before its round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunefarm_app.settings import Settings
from tunefarm_app.storage.rows import CostedTask, grouped
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Draft, Job, Json, NetworkTiming
from tunefarm_tuning.search.task_groups import latency_sec

MOST_TRIES = 2
SAMPLING_SEC = 0.6
_START_SEC = 0.5
_BYTES_PER_SEC = 50e6
_INFERENCES = 8
"""A slow network is run so often: for a first sample and three more, each after an inference that does not count."""
_LEAST_GAIN = 0.05
_GROWTH = 2.0
_COMPILE_SEC = 20.0
"""With less search left than that, no network is compiled any more."""
_UNTUNED_FACTOR = 2.0
"""How many times the time of its first working config an untuned kernel takes, where nothing tells."""
_NO_SLOWER = 1.02


def expected_sec(*, size_bytes: int, latency_here_sec: float | None) -> float:
    """Return how long timing a network should take: a session, its upload, and the inferences.

    Args:
        size_bytes: Size of its artifact.
        latency_here_sec: Seconds per inference as its compile saw them.
    """
    inferences_sec = _INFERENCES * (latency_here_sec or 0.0)
    return _START_SEC + size_bytes / _BYTES_PER_SEC + max(SAMPLING_SEC, inferences_sec)


def why_never(job: Job, network: NetworkTiming | None, expected: float, settings: Settings) -> Json | None:
    """Return why a network with this expected time will not be timed in the job's search; None if it may be.

    Args:
        job: The job.
        network: Its last network that was timed.
        expected: How long timing the next one should take.
        settings: For the share of the search that timing may take.
    """
    share = settings.network_timing_share
    if not share:
        return _error(
            "network-timing-off", "networks are not timed during searches: TUNEFARM_NETWORK_TIMING_SHARE is 0"
        )
    wall_sec = job.budget.get("wall_sec")
    if wall_sec is None:
        return None
    cost_sec = expected if network is None else network.spent_sec
    if wall_sec < settings.network_timing_after_sec or cost_sec > share * wall_sec:
        return _error(
            "network-timing-too-long",
            f"timing the network should take {cost_sec:.1f} s, more than {share:.0%} of a search of {wall_sec:.0f} s",
        )
    return None


def _error(code: str, message: str) -> Json:
    return {"code": code, "message": message}


def to_time(job: Job, networks: Sequence[NetworkTiming], settings: Settings) -> NetworkTiming | None:
    """Return the network that the job's next round may time first; None if there is none, or the search would lose too much.

    All timings together take no more than `Settings.network_timing_share` of the search so far.
    """
    newest = networks[-1] if networks else None
    if newest is None or not newest.waits or newest.tries >= MOST_TRIES:
        return None
    if job.tuned_sec < settings.network_timing_after_sec:
        return None
    timed = [network for network in networks if network.latency_sec is not None]
    cost_sec = timed[-1].spent_sec if timed else newest.expected_sec
    spent_sec = sum(network.spent_sec for network in networks)
    return newest if spent_sec + cost_sec <= settings.network_timing_share * job.tuned_sec else None


def promised_gain(
    tasks: Sequence[CostedTask],
    flops: Mapping[str, float],
    then: Sequence[float | None],
    network_sec: float | None,
) -> float:
    """Return the share of the network's time that the kernels on record now should save over those that it was compiled with.

    Untuned kernels share what the network takes beside its tuned ones, by their expected times.

    Args:
        tasks: The job's tasks with their best costs now, by position.
        flops: Operations per call by workload key.
        then: Their best costs when the network was compiled.
        network_sec: Its measured time; None if it was not timed.
    """
    originals = [position for position, task in enumerate(tasks) if task.alternative is None]
    known_sec = sum(tasks[i].weight * (tasks[i].best_cost_sec or 0.0) for i in originals)
    known_flops = sum(
        tasks[i].weight * flops.get(tasks[i].workload_key, 0.0) for i in originals if tasks[i].best_cost_sec
    )
    sec_per_flop = known_sec / known_flops if known_flops else 0.0
    untuned = {
        i: _UNTUNED_FACTOR * (tasks[i].best_cost_sec or sec_per_flop * flops.get(tasks[i].workload_key, 0.0))
        for i in originals
        if then[i] is None
    }
    all_untuned_sec = sum(tasks[i].weight * sec for i, sec in untuned.items())
    if network_sec is not None and all_untuned_sec:
        tuned_sec = sum(tasks[i].weight * (then[i] or 0.0) for i in originals)
        scale = max(network_sec - tuned_sec, 0.0) / all_untuned_sec
        untuned = {i: scale * sec for i, sec in untuned.items()}
    before_sec = _sum_sec(
        tasks, [cost if cost is not None else untuned.get(i) for i, cost in enumerate(then)]
    )
    after_sec = _sum_sec(
        tasks,
        [
            task.best_cost_sec if task.best_cost_sec is not None else untuned.get(i)
            for i, task in enumerate(tasks)
        ],
    )
    return (before_sec - after_sec) / before_sec if before_sec and after_sec is not None else 0.0


def _sum_sec(tasks: Sequence[CostedTask], costs: Sequence[float | None]) -> float | None:
    return latency_sec([grouped(task, cost) for task, cost in zip(tasks, costs, strict=True)])


def may_compile_again(job: Job, newest: NetworkTiming, settings: Settings) -> bool:
    """Return whether it is time for the next network: after twice the search of the last one, while enough search is left."""
    wall_sec = job.budget.get("wall_sec")
    due_sec = max(settings.network_timing_after_sec / _GROWTH, _GROWTH * newest.began_sec)
    return job.tuned_sec >= due_sec and (wall_sec is None or wall_sec - job.tuned_sec >= _COMPILE_SEC)


def promises_enough(gain: float) -> bool:
    """Return whether a network with such a gain is worth its compile."""
    return gain >= _LEAST_GAIN


def costs_then(network: NetworkTiming, tasks: int) -> list[float | None]:
    """Return the costs that the tasks had when a network was compiled, by position."""
    return [network.costs.get(str(position)) for position in range(tasks)]


def costs_now(tasks: Sequence[CostedTask]) -> Json:
    """Return the tasks' best costs as `NetworkTiming.costs` has them."""
    return {
        str(position): task.best_cost_sec
        for position, task in enumerate(tasks)
        if task.best_cost_sec is not None
    }


def show_network(repos: Repositories, job: Job, networks: Sequence[NetworkTiming]) -> float | None:
    """Show the fastest measured network as the job's latency until it has an artifact; return that latency."""
    fastest = fastest_of(networks)
    if job.state is JobState.SUCCEEDED or fastest is None:
        return None
    repos.jobs.set_numbers(
        job.id, network_latency_sec=fastest.latency_sec, speedups={}, over_untuned=None, over_runtime=None
    )
    return fastest.latency_sec


def fastest_of(networks: Sequence[NetworkTiming]) -> NetworkTiming | None:
    """Return the fastest of the networks that were timed; None if none was."""
    timed = [network for network in networks if network.latency_sec is not None]
    return min(timed, key=lambda network: network.latency_sec or 0.0, default=None)


def offer_network(
    repos: Repositories, network: NetworkTiming, networks: Sequence[NetworkTiming], *, limit_bytes: int
) -> bool:
    """Offer a network as its job's draft, unless an earlier one is faster, as far as it was timed; return whether it is one now."""
    fastest = fastest_of([other for other in networks if other.number < network.number])
    is_slower = (
        fastest is not None
        and fastest.latency_sec is not None
        and network.latency_sec is not None
        and network.latency_sec > _NO_SLOWER * fastest.latency_sec
    )
    if is_slower or network.size_bytes > limit_bytes or repos.artifacts.for_job(network.job_id) is not None:
        return False
    return put_draft(repos, network, limit_bytes=limit_bytes)


def put_draft(repos: Repositories, file: NetworkTiming | Draft, *, limit_bytes: int) -> bool:
    """Store a job's draft, and tell the job; drafts of other jobs make room. Return whether it is better than what was there."""
    facts = {"tasks": file.tasks, "covered": file.covered, "size_bytes": file.size_bytes}
    is_better = repos.drafts.put(
        file.job_id,
        sha256=file.sha256,
        size_bytes=file.size_bytes,
        name=file.name,
        tasks=file.tasks,
        covered=file.covered,
        envelope=file.envelope,
    )
    if is_better:
        repos.drafts.make_room(file.job_id, limit_bytes=limit_bytes)
        repos.events.add(file.job_id, "draft", facts)
    return is_better

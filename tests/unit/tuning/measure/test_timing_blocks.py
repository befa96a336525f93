"""Blocks of timings: which count, and what counts of them where other work lasts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tunefarm_tuning.core.latency import Latency, is_quiet
from tunefarm_tuning.core.ratio import speedup
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import (
    Block,
    Sample,
    group_size,
    in_groups,
    latencies_of,
    time_groups,
)

SLOW_SEC, FAST_SEC = 3e-4, 2e-4
NAMES = ("onnxruntime", "tuned")
BUSY = Watched(wall_sec=0.1, cores=2, others_sec=0.1, steal_sec=0.0, switches=9, stalled_sec=None)


def sample(sec: float, fast_sec: float | None, watched: Watched | None = BUSY) -> Sample:
    return Sample(sec=sec, inferences=100, watched=watched, fast_sec=fast_sec)


def beside_others(rng: random.Random, count: int, *, alone: float = 0.3, scale: float = 1.0) -> list[Block]:
    """Return blocks as two busy processes leave them on two cores: some inferences of each sample wait for milliseconds.

    The threads of a sample have cores of their own with the probability `alone`; otherwise they share one, and the rest of the
    inferences take twice as long.
    """

    def taken(quiet_sec: float) -> Sample:
        fast_sec = scale * quiet_sec * (1 if rng.random() < alone else 2) * rng.uniform(1.0, 1.06)
        return sample(fast_sec * rng.uniform(1.3, 8.0), fast_sec)

    return [Block({"onnxruntime": taken(SLOW_SEC), "tuned": taken(FAST_SEC)}) for _ in range(count)]


def gain(blocks: list[Block]) -> tuple[float, float, dict[str, Latency]]:
    latency = latencies_of(blocks, NAMES, 2)
    ratio = speedup(latency["onnxruntime"], latency["tuned"])
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low, ratio.high, latency


def test_the_interval_of_the_fastest_inferences_is_narrow_and_holds_the_quiet_ratio() -> None:
    rng = random.Random(7)
    intervals = [gain(beside_others(rng, 30))[:2] for _ in range(100)]
    assert sum(low <= SLOW_SEC / FAST_SEC <= high for low, high in intervals) >= 95
    assert sorted(high / low for low, high in intervals)[90] < 1.5
    means = [[Block({name: sample(s.sec, None) for name, s in block.samples.items()}) for block in beside_others(rng, 30)]
             for _ in range(20)]  # fmt: skip
    assert min(high / low for low, high, _ in map(gain, means)) > 3, "as of a device of an earlier release"


def test_they_are_said_to_be_the_fastest_and_are_no_quiet_timings() -> None:
    *_, latency = gain(beside_others(random.Random(1), 30))
    for name, quiet_sec in (("onnxruntime", SLOW_SEC), ("tuned", FAST_SEC)):
        assert latency[name].is_of_fastest
        assert latency[name].median_sec == pytest.approx(quiet_sec, rel=0.08)
        assert latency[name].disturbance is not None
        assert latency[name].disturbance.blocks == 30
        assert latency[name].disturbance.dropped == 30 - len(latency[name].samples_sec)
        assert Latency.from_json(latency[name].to_json()) == latency[name]
    assert is_quiet(list(latency.values())) is False


def test_the_fastest_inferences_are_not_compared_with_the_means_of_longer_ones() -> None:
    """One took 4.5 times as long as the other by that, beside a busy process, and 1.3 times as long alone."""
    rng = random.Random(8)
    for blocks in (beside_others(rng, 30, scale=11) for _ in range(20)):  # 2.2 and 3.3 ms
        low, high, latency = gain(blocks)
        assert not any(each.is_of_fastest for each in latency.values())
        assert low < SLOW_SEC / FAST_SEC < high


def test_one_fast_sample_is_no_evidence() -> None:
    blocks = beside_others(random.Random(2), 30, alone=1.0, scale=2)
    blocks[11].samples["tuned"] = sample(2 * FAST_SEC, FAST_SEC)
    low, high, latency = gain(blocks)
    assert len(latency["tuned"].samples_sec) == 3
    assert low < SLOW_SEC / FAST_SEC < 2 * SLOW_SEC / FAST_SEC < high


@pytest.mark.parametrize(
    "blocks",
    [
        lambda rng: beside_others(rng, 4, alone=1.0),
        lambda rng: beside_others(rng, 30, scale=20),  # longer than Linux lets a thread run beside others
    ],
)
def test_other_blocks_are_known_as_far_as_others_may_have_slowed_them(
    blocks: Callable[[random.Random], list[Block]],
) -> None:
    low, high, latency = gain(blocks(random.Random(3)))
    assert not any(each.is_of_fastest for each in latency.values())
    assert latency["tuned"].slowdown > 1.5
    assert high > 3 * low


@pytest.mark.parametrize(("count", "alone"), [(14, 0.5), (30, 0.0), (30, 1.0)])
def test_threads_may_have_shared_a_core_in_few_samples_and_where_all_are_alike(
    count: int, alone: float
) -> None:
    low, high, latency = gain(beside_others(random.Random(5), count, alone=alone))
    assert (latency["onnxruntime"].slowdown, latency["tuned"].slowdown) == (2.2, 2.2)
    assert low < SLOW_SEC / FAST_SEC / 2
    assert high > SLOW_SEC / FAST_SEC * 2


def test_where_one_of_two_networks_never_had_cores_of_its_own_the_interval_holds_the_ratio() -> None:
    rng = random.Random(6)
    blocks = beside_others(rng, 30)
    for block, shared in zip(blocks, beside_others(rng, 30, alone=0.0), strict=True):
        block.samples["tuned"] = shared.samples["tuned"]
    low, high, latency = gain(blocks)
    assert (latency["onnxruntime"].slowdown, latency["tuned"].slowdown) == (1.1, 2.2)
    assert low < SLOW_SEC / FAST_SEC < high


@pytest.mark.parametrize(("threads", "others_sec"), [(1, 0.2), (2, 0.025)])
def test_one_thread_or_beside_little_other_work_share_no_core(threads: int, others_sec: float) -> None:
    watched = replace(BUSY, others_sec=others_sec)
    blocks = [
        Block({name: replace(each, watched=watched) for name, each in block.samples.items()})
        for block in beside_others(random.Random(9), 30, alone=1.0)
    ]
    latency = latencies_of(blocks, NAMES, threads)
    assert [latency[name].is_of_fastest for name in NAMES] == [True, True]
    assert latency["tuned"].slowdown == 1.1


def test_quiet_blocks_count_by_their_means() -> None:
    blocks = beside_others(random.Random(4), 30)
    quiet = Block(
        {name: sample(sec, 0.9 * sec, None) for name, sec in (("onnxruntime", 3e-3), ("tuned", 2e-3))}
    )
    low, high, latency = gain([*blocks, *[quiet] * 5])
    assert (low, high) == pytest.approx((1.5, 1.5))
    assert is_quiet(list(latency.values())) is not False


@pytest.mark.parametrize(
    ("number", "timed", "size"), [(1, 1, 1), (99, 99, 1), (100, 100, 1), (1234, 1200, 12)]
)
def test_inferences_are_timed_in_at_most_a_hundred_groups(number: int, timed: int, size: int) -> None:
    assert (in_groups(number), group_size(number)) == (timed, size)
    runs: list[None] = []
    groups_sec = time_groups(lambda: runs.append(None), timed)
    assert (len(runs), len(groups_sec)) == (timed, timed // size)
    assert min(groups_sec) > 0


def test_what_the_fastest_few_take_is_read_from_a_reply() -> None:
    groups_sec = [2.0] * 15 + [1.0] * 2 + [0.1]
    assert Sample.of(1.75, 20, None, groups_sec).fast_sec == 1.0
    assert Sample.of(1.75, 20, None, [9.0] + [1.0] * 2).fast_sec is None, "too few"
    assert Sample.of(1.75, 20, None, None).fast_sec is None

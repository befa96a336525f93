"""The interval of a speed-up."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist, median

import pytest

from tunefarm_text import quantities
from tunefarm_tuning.core.latency import Disturbance, Latency
from tunefarm_tuning.core.ratio import Ratio, speedup, speedups


def samples(middle: float, spread: float, count: int, seed: int) -> Latency:
    rng = random.Random(seed)
    return Latency.of([middle * (1 + rng.gauss(0, spread)) for _ in range(count)], 2)


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2])
def test_it_holds_the_true_ratio_nearly_always(spread: float) -> None:
    ratios = [
        speedup(samples(3, spread, 15, seed), samples(2, spread, 15, 1000 + seed)) for seed in range(60)
    ]
    held = [ratio for ratio in ratios if ratio.low is not None and ratio.low <= 1.5 <= (ratio.high or 0)]
    assert len(held) >= 54
    assert all(ratio.low is not None and ratio.low <= ratio.value <= (ratio.high or 0) for ratio in ratios)


def test_one_measurement_beside_itself_is_one_whatever_disturbed_it() -> None:
    """An artifact without tuned kernels is the untuned network, which is timed once."""
    disturbance = Disturbance(blocks=32, dropped=25, slowdown=1.4)
    latency = replace(samples(3, 0.2, 15, 1), disturbance=disturbance)
    assert speedup(latency, latency) == Ratio(value=1.0, low=1.0, high=1.0)
    other = replace(samples(3, 0.2, 15, 2), disturbance=disturbance)
    assert not speedup(other, latency).is_tight


def lasting(
    blocks: list[tuple[float, float]], alike: float, count: int, rng: random.Random
) -> list[tuple[float, float]]:
    """Draw blocks of which neighbours are alike: what disturbs one often lasts until the next."""
    drawn, state = [], rng.gauss(0, 1)
    for _ in range(count):
        drawn.append(blocks[min(int(NormalDist().cdf(state) * len(blocks)), len(blocks) - 1)])
        state = alike * state + math.sqrt(1 - alike**2) * rng.gauss(0, 1)
    return drawn


@pytest.mark.parametrize(("alike", "least"), [(0.0, 0.95), (0.6, 0.91)])
def test_it_holds_the_ratio_of_recorded_blocks_however_long_disturbances_last(
    alike: float, least: float
) -> None:
    # Seconds of ONNX Runtime and of the network in each block that `benchmarks.disturbed --blocks` wrote.
    recorded = json.loads(Path(__file__).with_name("recorded_blocks.json").read_text())
    rng, held = random.Random(5), []
    for blocks in recorded.values():
        truth = median(slow for slow, _ in blocks) / median(fast for _, fast in blocks)
        by_ratio = sorted(blocks, key=lambda block: block[0] / block[1])
        for _ in range(50):
            slow, fast = zip(*lasting(by_ratio, alike, 15, rng), strict=True)
            ratio = speedup(Latency.of(slow, 2), Latency.of(fast, 2))
            assert ratio.low is not None
            assert ratio.high is not None
            held.append(ratio.low <= truth <= ratio.high)
    assert sum(held) / len(held) >= least


def test_neighbours_that_are_alike_tell_less() -> None:
    rng = random.Random(1)
    values = sorted(rng.gauss(2, 0.1) for _ in range(20))
    mixed = rng.sample(values, len(values))
    steady = Latency.of([1.0] * 20, 2)
    shuffled, drifting = (speedup(Latency.of(samples, 2), steady) for samples in (mixed, values))
    assert shuffled.value == drifting.value
    assert (drifting.low or 0) < (shuffled.low or 0) < (shuffled.high or 0) < (drifting.high or 0)


def test_blocks_are_drawn_whole() -> None:
    # What slows a block slows both of its samples: the ratio is the same in every block.
    busy = [1.0, 1.0, 3.0, 1.0, 2.0, 1.0, 3.0, 2.0]
    ratio = speedup(Latency.of([1.5 * sec for sec in busy], 2), Latency.of(busy, 2))
    assert (ratio.low, ratio.value, ratio.high) == (1.5, 1.5, 1.5)
    assert ratio.is_tight


def test_few_samples_tell_no_more_than_they_are() -> None:
    ratio = speedup(Latency.of([4.0, 6.0], 1), Latency.of([1.0, 2.0, 1.0, 1.5, 1.0, 1.0], 1))
    assert (ratio.low, ratio.high) == (2.0, 6.0)
    once = speedup(Latency.of([4.0], 1), Latency.of([1.0, 1.0, 1.0], 1))
    assert once == Ratio(value=4.0)
    assert not once.is_tight


def test_what_others_may_have_slowed_widens_it() -> None:
    steady = Latency.of([2.0] * 9, 2)
    disturbed = replace(steady, disturbance=Disturbance(blocks=9, slowdown=1.5))
    assert speedup(steady, steady).is_tight
    assert speedup(disturbed, steady) == Ratio(value=1.0, low=1 / 1.5, high=1.0)
    assert speedup(steady, disturbed) == Ratio(value=1.0, low=1.0, high=1.5)


def test_all_of_a_network() -> None:
    latency = {name: Latency.of([sec] * 5, 1) for name, sec in (("tuned", 1.0), ("untuned", 2.0))}
    assert speedups(latency) == {"untuned": Ratio(value=2.0, low=2.0, high=2.0)}
    assert Ratio.from_json(speedups(latency)["untuned"].to_json()) == speedups(latency)["untuned"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Ratio(value=1.24, low=1.21, high=1.27), "1.24×"),
        (Ratio(value=2.5, low=1.2, high=3.94), "between 1.2 and 3.9×"),
        (Ratio(value=1944.5, low=0.12, high=21_741.7), "not known"),
        (Ratio(value=0.6, low=0.44, high=12.4), "between 0.44 and 12×"),
        (Ratio(value=1.24), "about 1.24×"),
    ],
)
def test_how_it_is_written(ratio: Ratio, text: str) -> None:
    assert quantities.speedup(ratio.value, ratio.low, ratio.high) == text

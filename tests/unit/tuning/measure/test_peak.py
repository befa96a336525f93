"""Peaks as values: the better of two, and the JSON of other releases."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tunefarm_tuning.measure.peak import Bandwidth, Peak, Rate, measure_peak
from tunefarm_tuning.target.parse import parse_target


def peak(one_core: float, every: float, *, key: str = "k", at: float = 1.0) -> Peak:
    return Peak(
        key=key,
        threads=2,
        measured_at=at,
        flops_per_sec={"float32": Rate(one_core=one_core, all_cores=every)},
        bandwidth=(
            Bandwidth(working_set_bytes=1024, bytes_per_sec=Rate(one_core=one_core, all_cores=every)),
        ),
    )


def test_the_better_of_each_figure_is_kept() -> None:
    merged = peak(10.0, 15.0, at=5.0).merged(peak(9.0, 19.0, at=7.0))
    assert merged.flops_per_sec == {"float32": Rate(one_core=10.0, all_cores=19.0)}
    assert merged.bandwidth[0].bytes_per_sec == Rate(one_core=10.0, all_cores=19.0)
    assert (merged.measured_at, merged.runs) == (7.0, 2)


def test_a_peak_of_which_others_took_a_core_is_doubtful() -> None:
    assert peak(10.0, 10.0).doubtful == {"float32": Rate(one_core=10.0, all_cores=10.0)}
    assert not peak(10.0, 18.0).doubtful
    assert not replace(peak(10.0, 10.0), threads=1).doubtful
    assert not peak(10.0, 10.0).merged(peak(9.0, 17.0)).doubtful
    assert not replace(peak(10.0, 10.0), runs=12).doubtful, "two threads of one core"


def test_figures_of_something_else_replace_it() -> None:
    other = peak(1.0, 2.0, key="another toolchain")
    assert peak(10.0, 15.0).merged(other) == other
    assert peak(10.0, 15.0).merged(replace(other, key="k", threads=8)).threads == 8


def test_what_failed_once_takes_nothing_away() -> None:
    nothing = Peak(key="k", threads=2, measured_at=9.0, missing="it was away")
    merged = peak(10.0, 15.0).merged(nothing)
    assert (merged.flops_per_sec, merged.missing) == (peak(10.0, 15.0).flops_per_sec, "")
    assert nothing.merged(nothing).missing == "it was away"


def test_json_there_and_back() -> None:
    original = replace(peak(10.0, 15.0), missing="float64: none")
    assert Peak.from_json(json.loads(json.dumps(original.to_json()))) == original


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"flops_per_sec": []},
        {"flops_per_sec": {"float32": {"one_core": 1.0}}},
        {"flops_per_sec": {"float32": {"one_core": -1.0, "all_cores": 1.0}}},
        {"bandwidth": [{"working_set_bytes": "much"}]},
        {"threads": None},
    ],
)
def test_anything_else_is_an_error(broken: dict[str, Any]) -> None:
    data = {**peak(1.0, 2.0).to_json(), **broken} if broken else {}
    with pytest.raises(ValueError, match="not a peak"):
        Peak.from_json(data)


def test_of_a_gpu_nothing_is_measured() -> None:
    peak_of_gpu = measure_peak(parse_target("cuda/sm_90"), threads=1)
    assert (peak_of_gpu.flops_per_sec, peak_of_gpu.bandwidth) == ({}, ())
    assert "GPU" in peak_of_gpu.missing
    assert peak_of_gpu.flops_on(1, "float32") is None
    assert peak_of_gpu.memory_bandwidth_on(1) is None

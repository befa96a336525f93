"""The choice of alternatives by the network's time, not by that of their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.alternative_selection import AlternativeSelector
from tunefarm_tuning.compiler.alternatives import Candidate, SelectedAlternatives
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, missed
from tunefarm_tuning.compiler.session import AlternativeInfo, CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.process import ChildFailed
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.random_inputs import InputKind
from tunefarm_tuning.space.config import Config

DIRECT = Path("direct.so")
SETS = [InputSet(kind=InputKind.NORMAL, seed=0, inputs=Path("in.npz"), expected=Path("out.npz"))]


class Networks:
    """Stands in for the compiler and the device: `sec` gives a network's time by its choices.

    Attributes:
        built: The choices of each library.
        records: The names of the kernels of each that have a record.
        watched: What the device says of other work during each sample.
    """

    def __init__(
        self,
        sec: Mapping[frozenset[str], float],
        inexact: frozenset[str] = frozenset(),
        watched: Watched | None = None,
    ) -> None:
        self.sec = sec
        self._watched = watched
        self._inexact = inexact
        self.built: dict[str, dict[str, str]] = {str(DIRECT): {}}
        self.records: dict[str, set[str]] = {}

    def build_model(
        self, path: Path, records: Mapping[str, TuningRecord], choices: Mapping[str, str] | None = None
    ) -> None:
        self.built[str(path)] = dict(choices or {})
        self.records[str(path)] = set(records)

    def call(self, method: str, params: dict[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        assert timeout_sec > 0
        if method == "yardstick_loop":
            return {"loop_sec": None}
        choices = self.built[params["path"]]
        if method == "time_model":
            watched = None if self._watched is None else self._watched.to_json()
            return {"samples_sec": [self.sec[frozenset(choices)]], "watched": watched}
        assert method == "check_model"
        ok = not self._inexact & set(choices.values())
        comparison = Comparison(
            name="y", dtype="float32", ok=ok, message="" if ok else "it is off", max_abs_error=0.0, max_rel_error=0.0,
            rtol=1e-3, mismatches=0, elements=1, comparable=1,
        )  # fmt: skip
        return {"comparisons": [comparison.to_json()]}


def record(key: str) -> TuningRecord:
    return TuningRecord(
        workload_key=key, target_key="t", device_model="d", toolchain="c", space_key="s", config=Config(0, ()),
        outcome=Outcome.OK, samples_sec=(1e-3,), build_sec=0.0, measured_at=0.0,
    )  # fmt: skip


def kernel(key: str, sec: float, *, tuned: bool = True) -> CheckedKernel:
    task = KernelInfo(workload_key=key, names=(key,), weight=1, args=())
    return CheckedKernel(
        task=task,
        record=record(key) if tuned else None,
        miss=None if tuned else missed(task, MissReason.NO_RECORD),
        evidence={"tuned_sec": [sec] if tuned else [], "untuned_sec": [100.0 * sec]},
    )


def candidate(direct: CheckedKernel, sec: float, algorithm: str = "winograd-4") -> Candidate:
    tuned = kernel(f"{direct.task.workload_key}-matmul", sec)
    info = AlternativeInfo(
        workload_key=direct.task.workload_key, algorithm=algorithm, tuned=tuned.task, fixed=()
    )
    return Candidate(info=info, direct=direct, tuned=tuned, fixed_sec={"input": 1e-3, "output": 2e-3})


def selector_of(networks: Networks, folder: Path, *candidates: Candidate) -> AlternativeSelector:
    return AlternativeSelector(
        compiler=cast("CompileSession", networks),
        runner=cast("DeviceRun", networks),
        folder=folder,
        limits=CompileLimits(),
        threads=1,
        on_step=lambda: None,
        candidates=list(candidates),
        build_direct=lambda: DIRECT,
        records={},
        sets=SETS,
        output_names=["y"],
    )


def again(
    networks: Networks, folder: Path, findings: Findings, *candidates: Candidate, ablation_sec: float = 60.0
) -> SelectedAlternatives:
    """Select with what an earlier selection found out."""
    selector = selector_of(networks, folder, *candidates)
    selector.limits = CompileLimits(ablation_sec=ablation_sec)
    selector.findings = Findings(findings.noted.get).within()
    return selector.select()


def test_verdicts_are_remembered_and_nothing_is_timed_again(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)))
    findings = Findings()
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    selector.findings = findings.within()
    first = selector.select()
    untimed = Networks({})
    second = again(untimed, tmp_path, findings, candidate(a, 0.005), candidate(b, 0.005))
    assert untimed.built[str(second.library)] == {"a": "winograd-4"}
    assert len(untimed.built) == 2, "the network with the alternatives alone is built"
    assert second.networks_sec == {}
    verdicts = [[each.to_json() for each in selected.candidates] for selected in (first, second)]
    assert verdicts[0] == verdicts[1]


def test_only_an_alternative_beside_another_kernel_is_judged_again(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    findings = Findings()
    networks = Networks(sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    selector.findings = findings.within()
    selector.select()
    moved = candidate(b, 0.005)
    moved.info = replace(moved.info, neighbours=("after c",))
    other = Networks(sets_of(("", 0.050), ("a", 0.045), ("a b", 0.035)))
    selected = again(other, tmp_path, findings, candidate(a, 0.005), moved)
    assert other.built[str(selected.library)] == {"a": "winograd-4", "b": "winograd-4"}
    assert selected.networks_sec == {"direct": 0.050, "chosen": 0.035}


def test_a_remembered_alternative_that_is_not_exact_enough_here_is_withdrawn(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    findings = Findings()
    selector = selector_of(Networks(sets_of(("", 0.050), ("a", 0.035))), tmp_path, candidate(a, 0.005))
    selector.findings = findings.within()
    assert selector.select().algorithms == {"a": "winograd-4"}
    inexact = Networks({}, frozenset({"winograd-4"}))
    selected = again(inexact, tmp_path, findings, candidate(a, 0.005))
    assert selected.library == DIRECT
    assert "not accurate enough" in selected.candidates[0].reason


def sets_of(*sec: tuple[str, float]) -> dict[frozenset[str], float]:
    return {frozenset(choices.split()): seconds for choices, seconds in sec}


def test_what_makes_the_network_faster_goes_in(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    selected = selector.select()
    assert networks.built[str(selected.library)] == {"a": "winograd-4"}
    assert networks.records[str(selected.library)] == {"a-matmul"}
    assert selected.networks_sec == {"direct": 0.050, "chosen": 0.035}
    first, second = (candidate.to_json() for candidate in selected.candidates)
    assert first["chosen"]
    assert first["network_gain_sec"] == pytest.approx(0.015)
    assert first["expected_gain_sec"] == pytest.approx(0.020 - 0.008)
    assert first["border_cost_sec"] == pytest.approx(0.012 - 0.015)
    assert not second["chosen"]
    assert second["reason"] == "the network is faster without it"
    assert second["network_gain_sec"] == pytest.approx(-0.010)
    kernels = selected.kernels([a, b])
    assert [kernel.task.workload_key for kernel in kernels] == ["b", "a-matmul"]


def three(folder: Path) -> tuple[Networks, AlternativeSelector]:
    """Return a selector of three candidates; all but the last clearly win."""
    a, b, c = (kernel(key, 0.020) for key in "abc")
    networks = Networks(
        sets_of(("", 0.080), ("a b c", 0.050), ("a b", 0.052), ("a c", 0.060), ("b c", 0.063))
    )
    return networks, selector_of(
        networks, folder, candidate(a, 0.005), candidate(b, 0.006), candidate(c, 0.013)
    )


def test_a_clear_winner_is_ablated_to_tell_its_gain(tmp_path: Path) -> None:
    networks, selector = three(tmp_path)
    selected = selector.select()
    tried = [set(choices) for choices in networks.built.values()]
    assert tried == [set(), {"a", "b", "c"}, {"a", "b"}, {"b", "c"}, {"a", "c"}], (
        "unclear first, then the largest gain"
    )
    assert set(selected.algorithms) == {"a", "b", "c"}
    lines = [candidate.to_json() for candidate in selected.candidates]
    assert [line["network_gain_sec"] for line in lines] == pytest.approx([0.013, 0.010, 0.002])
    assert [line["border_cost_sec"] for line in lines] == pytest.approx([-0.001, 0.001, 0.002])


def test_a_clear_winner_is_not_ablated_where_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm_tuning.compiler.alternative_selection._CLEAR_WINNERS_SHARE", -1.0)
    networks, selector = three(tmp_path)
    selected = selector.select()
    assert len(networks.built) == 3
    assert set(selected.algorithms) == {"a", "b", "c"}
    gains = [candidate.network_gain_sec for candidate in selected.candidates]
    assert gains == [None, None, pytest.approx(0.002)]


def test_nothing_changes_where_the_network_without_one_does_not_build(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)

    class Failing(Networks):
        def build_model(
            self, path: Path, records: Mapping[str, TuningRecord], choices: Mapping[str, str] | None = None
        ) -> None:
            if len(choices or {}) == 1:
                raise ChildFailed("no memory")
            super().build_model(path, records, choices)

    networks = Failing(sets_of(("", 0.050), ("a b", 0.045)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    selected = selector.select()
    assert set(networks.built[str(selected.library)]) == set(selected.algorithms) == {"a", "b"}
    assert [candidate.reason for candidate in selected.candidates] == ["", ""]


def test_nothing_goes_in_that_makes_no_network_faster(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.0501)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005))
    selected = selector.select()
    assert selected.library == DIRECT
    assert not selected.chosen
    assert selected.kernels([a]) == [a]
    assert "not faster" in selected.candidates[0].reason


BUSY = Watched(wall_sec=0.05, cores=1, others_sec=0.025, steal_sec=0.0, switches=0, stalled_sec=None)


def test_timings_that_others_slowed_remove_no_alternative_and_hold_for_the_hurried_alone(
    tmp_path: Path,
) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(
        sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)), watched=BUSY
    )  # quiet, b would go
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    findings = Findings()
    selector.findings = findings.within()
    selected = selector.select()
    assert networks.built[str(selected.library)] == {"a": "winograd-4", "b": "winograd-4"}
    assert [each.reason for each in selected.candidates] == ["", ""]
    untimed, fresh = Networks({}), (candidate(a, 0.005), candidate(b, 0.005))
    again(untimed, tmp_path, findings, *fresh, ablation_sec=0.0)
    assert len(untimed.built) == 2, "the network with both alternatives alone is built"
    quiet = Networks(networks.sec)
    assert again(quiet, tmp_path, findings, *fresh).algorithms == {"a": "winograd-4"}


def test_an_untuned_network_in_a_hurry_is_timed_by_the_next_phase_alone(tmp_path: Path) -> None:
    networks = Networks({})
    offered = untuned(candidate(kernel("a", 0.020, tuned=False), 1.0), 0.5)
    selector = selector_of(networks, tmp_path, offered)
    selector.limits = CompileLimits(ablation_sec=0.0)
    assert networks.built[str(selector.select().library)] == {"a": "winograd-4"}


@pytest.mark.parametrize("sec", [0.055, 0.150])
def test_nothing_stays_that_the_network_does_not_bear_out(tmp_path: Path, sec: float) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", sec)), watched=BUSY)
    selected = selector_of(networks, tmp_path, candidate(a, 0.005)).select()
    assert selected.library == DIRECT
    assert "not faster" in selected.candidates[0].reason


def test_what_takes_longer_by_itself_is_not_tried(tmp_path: Path) -> None:
    networks = Networks({})
    selector = selector_of(networks, tmp_path, candidate(kernel("a", 0.020), 0.019))
    selected = selector.select()
    assert selected.library == DIRECT
    assert networks.built == {str(DIRECT): {}}
    assert "take longer than the direct kernel" in selected.candidates[0].reason


def test_a_record_timed_out_of_the_caches_is_believed(tmp_path: Path) -> None:
    networks = Networks({})
    cached = candidate(kernel("a", 0.020), 0.005)
    assert cached.tuned.record is not None
    cached.tuned = replace(cached.tuned, record=replace(cached.tuned.record, samples_sec=(0.030,)))
    assert cached.tuned_sec == 0.030
    assert selector_of(networks, tmp_path, cached).select().library == DIRECT
    assert networks.built == {str(DIRECT): {}}


def test_of_two_for_one_kernel_the_cheaper_is_tried(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.009), candidate(a, 0.005, "winograd-2"))
    selected = selector.select()
    assert selected.algorithms == {"a": "winograd-2"}
    assert "longer than those of winograd-2" in selected.candidates[0].reason


def test_what_is_not_exact_enough_is_left_out(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("b", 0.040)), inexact=frozenset({"winograd-4"}))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005, "winograd-2"))
    selected = selector.select()
    assert networks.built[str(selected.library)] == {"b": "winograd-2"}
    assert "not accurate enough" in selected.candidates[0].reason


def test_smaller_tiles_replace_inexact_ones(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.040)), inexact=frozenset({"winograd-4"}))
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(a, 0.009, "winograd-2"))
    selected = selector.select()
    assert networks.built[str(selected.library)] == {"a": "winograd-2"}
    assert "not accurate enough" in selected.candidates[0].reason
    assert selected.candidates[1].reason == ""


def test_a_kernel_without_a_record_is_compared_untuned(tmp_path: Path) -> None:
    a = kernel("a", 0.020, tuned=False)
    networks = Networks(sets_of(("", 2.0), ("a", 0.035)))
    selector = selector_of(networks, tmp_path, candidate(a, 0.5))
    selected = selector.select()
    assert selected.algorithms == {"a": "winograd-4"}
    assert [kernel.task.workload_key for kernel in selected.kernels([a])] == ["a-matmul"]


def test_a_goal_leaves_out_ablations_and_their_verdicts(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)))
    findings = Findings()
    selector = selector_of(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    selector.findings = findings.within()
    selector.spare_sec = lambda _most_sec: 0.0
    hurried = selector.select()
    assert networks.built[str(hurried.library)] == {"a": "winograd-4", "b": "winograd-4"}, (
        "still faster than without"
    )
    assert len(networks.built) == 2
    later = again(networks, tmp_path, findings, candidate(a, 0.005), candidate(b, 0.005))
    assert networks.built[str(later.library)] == {"a": "winograd-4"}, (
        "a compile with time finds the faster one"
    )


def untuned(offered: Candidate, sec: float) -> Candidate:
    """Return a candidate whose kernel has no record, and takes `sec` by its default schedule."""
    task = offered.info.tuned
    offered.tuned = CheckedKernel(
        task=task, record=None, miss=missed(task, MissReason.NO_RECORD), evidence={"untuned_sec": [sec]}
    )
    return offered


def test_an_untuned_alternative_goes_in_if_it_is_clearly_faster(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020, tuned=False), kernel("b", 0.020, tuned=False)
    networks = Networks(sets_of(("", 4.0), ("a", 0.035)))
    clear, close = untuned(candidate(a, 1.0), 0.5), untuned(candidate(b, 1.0), 1.95)
    selected = selector_of(networks, tmp_path, clear, close).select()
    assert selected.algorithms == {"a": "winograd-4"}
    assert selected.records == {}
    assert networks.records[str(selected.library)] == set()
    assert "hardly faster" in selected.candidates[1].reason


def test_a_compile_without_any_record_does_not_ablate_to_tell_gains(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020, tuned=False), kernel("b", 0.020, tuned=False)
    networks = Networks(sets_of(("", 4.0), ("a b", 0.5)))
    offered = [untuned(candidate(direct, 1.0), 0.5) for direct in (a, b)]
    selected = selector_of(networks, tmp_path, *offered).select()
    assert selected.algorithms == {"a": "winograd-4", "b": "winograd-4"}
    assert len(networks.built) == 2, "the direct network and that with both: each clearly wins"

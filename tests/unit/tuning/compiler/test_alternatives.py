"""Which alternatives go into a network: what its own time says, whatever its kernels say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.alternatives import AlternativeChoice, Candidate
from tunefarm_tuning.compiler.kernel_check import CheckedKernel, missed
from tunefarm_tuning.compiler.session import AlternativeInfo, CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildFailed
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.random_inputs import InputKind
from tunefarm_tuning.space.config import Config

DIRECT = Path("direct.so")
SETS = [InputSet(kind=InputKind.NORMAL, seed=0, inputs=Path("in.npz"), expected=Path("out.npz"))]


class Networks:
    """Stands for the compiler and the device: a network takes what `sec` says of its choices.

    Attributes:
        built: The choices of each library.
    """

    def __init__(self, sec: Mapping[frozenset[str], float], inexact: frozenset[str] = frozenset()) -> None:
        self._sec = sec
        self._inexact = inexact
        self.built: dict[str, dict[str, str]] = {str(DIRECT): {}}

    def build_model(
        self, path: Path, records: Mapping[str, TuningRecord], choices: Mapping[str, str] | None = None
    ) -> None:
        self.built[str(path)] = dict(choices or {})
        assert {f"{key}-matmul" for key in choices or {}} <= records.keys()

    def call(self, method: str, params: dict[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        assert timeout_sec > 0
        choices = self.built[params["path"]]
        if method == "time_model":
            return {"samples_sec": [self._sec[frozenset(choices)]]}
        assert method == "check_model"
        ok = not self._inexact & set(choices.values())
        one = Comparison(
            name="y", dtype="float32", ok=ok, message="" if ok else "it is off", max_abs_error=0.0, max_rel_error=0.0,
            rtol=1e-3, mismatches=0, elements=1, comparable=1,
        )  # fmt: skip
        return {"comparisons": [one.to_json()]}


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


def choice(networks: Networks, folder: Path, *candidates: Candidate) -> AlternativeChoice:
    return AlternativeChoice(
        cast("CompileSession", networks),
        cast("DeviceRun", networks),
        folder,
        CompileLimits(),
        1,
        lambda: None,
        candidates=list(candidates),
    )


def sets_of(*sec: tuple[str, float]) -> dict[frozenset[str], float]:
    return {frozenset(choices.split()): seconds for choices, seconds in sec}


def test_what_makes_the_network_faster_goes_in(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035), ("b", 0.060), ("a b", 0.045)))
    chooser = choice(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    chosen = chooser.choose(DIRECT, {}, SETS, ["y"])
    assert networks.built[str(chosen)] == {"a": "winograd-4"}
    assert chooser.networks_sec == {"direct": 0.050, "chosen": 0.035}
    first, second = (one.to_json() for one in chooser.candidates)
    assert first["chosen"]
    assert first["network_gain_sec"] == pytest.approx(0.015)
    assert first["expected_gain_sec"] == pytest.approx(0.020 - 0.008)
    assert first["border_cost_sec"] == pytest.approx(0.012 - 0.015)
    assert not second["chosen"]
    assert second["reason"] == "the network is faster without it"
    assert second["network_gain_sec"] == pytest.approx(-0.010)
    kernels = chooser.kernels([a, b])
    assert [one.task.workload_key for one in kernels] == ["b", "a-matmul"]


def three(folder: Path) -> tuple[Networks, AlternativeChoice]:
    """Return a choice of three, of which the last alone is in doubt."""
    a, b, c = (kernel(key, 0.020) for key in "abc")
    networks = Networks(
        sets_of(("", 0.080), ("a b c", 0.050), ("a b", 0.052), ("a c", 0.060), ("b c", 0.063))
    )
    return networks, choice(networks, folder, candidate(a, 0.005), candidate(b, 0.006), candidate(c, 0.013))


def test_what_is_beyond_doubt_is_timed_for_what_it_costs_at_its_borders(tmp_path: Path) -> None:
    networks, chooser = three(tmp_path)
    chooser.choose(DIRECT, {}, SETS, ["y"])
    tried = [set(choices) for choices in networks.built.values()]
    assert tried == [set(), {"a", "b", "c"}, {"a", "b"}, {"b", "c"}, {"a", "c"}], "in doubt, then most won"
    assert set(chooser.choices) == {"a", "b", "c"}
    told = [one.to_json() for one in chooser.candidates]
    assert [one["network_gain_sec"] for one in told] == pytest.approx([0.013, 0.010, 0.002])
    assert [one["border_cost_sec"] for one in told] == pytest.approx([-0.001, 0.001, 0.002])


def test_what_is_beyond_doubt_is_not_timed_alone_where_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm_tuning.compiler.alternatives._BORDERS_SEC", -1.0)
    networks, chooser = three(tmp_path)
    chooser.choose(DIRECT, {}, SETS, ["y"])
    assert len(networks.built) == 3
    assert set(chooser.choices) == {"a", "b", "c"}
    gains = [one.network_gain_sec for one in chooser.candidates]
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
    chooser = choice(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005))
    chosen = chooser.choose(DIRECT, {}, SETS, ["y"])
    assert set(networks.built[str(chosen)]) == set(chooser.choices) == {"a", "b"}
    assert [one.reason for one in chooser.candidates] == ["", ""]


def test_nothing_goes_in_that_makes_no_network_faster(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.0501)))
    chooser = choice(networks, tmp_path, candidate(a, 0.005))
    assert chooser.choose(DIRECT, {}, SETS, ["y"]) == DIRECT
    assert not chooser.chosen
    assert chooser.kernels([a]) == [a]
    assert "no faster" in chooser.candidates[0].reason


def test_what_takes_longer_by_itself_is_not_tried(tmp_path: Path) -> None:
    networks = Networks({})
    chooser = choice(networks, tmp_path, candidate(kernel("a", 0.020), 0.019))
    assert chooser.choose(DIRECT, {}, SETS, ["y"]) == DIRECT
    assert networks.built == {str(DIRECT): {}}
    assert "take longer than the direct one" in chooser.candidates[0].reason


def test_a_record_timed_out_of_the_caches_is_believed(tmp_path: Path) -> None:
    networks = Networks({})
    one = candidate(kernel("a", 0.020), 0.005)
    assert one.tuned.record is not None
    one.tuned = replace(one.tuned, record=replace(one.tuned.record, samples_sec=(0.030,)))
    assert one.tuned_sec == 0.030
    assert choice(networks, tmp_path, one).choose(DIRECT, {}, SETS, ["y"]) == DIRECT
    assert networks.built == {str(DIRECT): {}}


def test_of_two_for_one_kernel_the_cheaper_is_tried(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.035)))
    chooser = choice(networks, tmp_path, candidate(a, 0.009), candidate(a, 0.005, "winograd-2"))
    chooser.choose(DIRECT, {}, SETS, ["y"])
    assert chooser.choices == {"a": "winograd-2"}
    assert "longer than those of winograd-2" in chooser.candidates[0].reason


def test_what_is_not_exact_enough_is_left_out(tmp_path: Path) -> None:
    a, b = kernel("a", 0.020), kernel("b", 0.020)
    networks = Networks(sets_of(("", 0.050), ("b", 0.040)), inexact=frozenset({"winograd-4"}))
    chooser = choice(networks, tmp_path, candidate(a, 0.005), candidate(b, 0.005, "winograd-2"))
    chosen = chooser.choose(DIRECT, {}, SETS, ["y"])
    assert networks.built[str(chosen)] == {"b": "winograd-2"}
    assert "not exact enough" in chooser.candidates[0].reason


def test_smaller_tiles_take_the_place_of_what_is_not_exact_enough(tmp_path: Path) -> None:
    a = kernel("a", 0.020)
    networks = Networks(sets_of(("", 0.050), ("a", 0.040)), inexact=frozenset({"winograd-4"}))
    chooser = choice(networks, tmp_path, candidate(a, 0.005), candidate(a, 0.009, "winograd-2"))
    chosen = chooser.choose(DIRECT, {}, SETS, ["y"])
    assert networks.built[str(chosen)] == {"a": "winograd-2"}
    assert "not exact enough" in chooser.candidates[0].reason
    assert chooser.candidates[1].reason == ""


def test_a_kernel_without_a_record_is_compared_untuned(tmp_path: Path) -> None:
    a = kernel("a", 0.020, tuned=False)
    networks = Networks(sets_of(("", 2.0), ("a", 0.035)))
    chooser = choice(networks, tmp_path, candidate(a, 0.5))
    chooser.choose(DIRECT, {}, SETS, ["y"])
    assert chooser.choices == {"a": "winograd-4"}
    assert [one.task.workload_key for one in chooser.kernels([a])] == ["a-matmul"]

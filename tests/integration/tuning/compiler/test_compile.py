"""Compiling with a history: tuned kernels, fallbacks, and files that are never written."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx_models import GraphBuilder

import tunefarm_tuning
from tunefarm_tuning import Artifact, History, MissReason, Model, apply_history_best, import_model, verify
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.compiler.job import CompileJob
from tunefarm_tuning.compiler.phases.build_model import Fallback, build_models
from tunefarm_tuning.compiler.phases.check_kernels import check_kernels
from tunefarm_tuning.compiler.phases.check_model import check_tuned
from tunefarm_tuning.compiler.phases.load import load as load_model
from tunefarm_tuning.compiler.phases.pack import final_kernels
from tunefarm_tuning.compiler.request import PHASES, CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import CancelledError, InvalidInputError, InvalidModelError
from tunefarm_tuning.core.spans import SpanKind, recording
from tunefarm_tuning.records.coverage import Coverage
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import Reference
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.testing.records import TunedNet

TAKE_ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)


def test_all_records_go_in_and_the_report_proves_it(
    tiny_net: TunedNet, compiled: tuple[Artifact, Coverage]
) -> None:
    artifact, coverage = compiled
    assert artifact.path.name == "tiny.tunefarm"
    assert [hit.workload_key for hit in coverage.hits] == [r.workload_key for r in tiny_net.records]
    assert coverage.misses == ()
    assert all(hit.tuned_sec and hit.untuned_sec for hit in coverage.hits)
    report = artifact.report
    assert report["coverage"] == coverage.to_json()
    assert report["fallbacks"] == []
    assert report["warnings"] == []
    assert report["checks"]["ok"]
    assert 0 < report["checks"]["max_abs_error"] < 1e-4
    assert [input_set["kind"] for input_set in report["checks"]["input_sets"]] == ["normal", "positive"]
    assert len(report["kernels"]) == 3
    for which in ("onnxruntime", "untuned", "tuned"):
        assert report["latency"][which]["median_sec"] > 0
        assert report["latency"][which]["threads"] == artifact.manifest["threads"]
        assert len(report["latency"][which]["inferences"]) == len(report["latency"][which]["samples_sec"])
    assert report["place"]["this_machine"]
    assert report["place"]["threads"] == artifact.manifest["threads"]
    assert "15 blocks" in report["method"]["latency"]
    assert [(r["workload_key"], r["cost_sec"]) for r in report["records"]] == [
        (r.workload_key, r.cost_sec) for r in tiny_net.records
    ]
    names = {name for kernel in report["kernels"] for name in kernel["names"]}
    assert all(kernel["reason"] and kernel["name"] not in names for kernel in report["not_tunable"])
    assert artifact.manifest["unaligned_inputs"]
    assert [r["config"] for r in artifact.manifest["records"]] == [
        r.config.to_json() for r in tiny_net.records
    ]
    assert set(report["phases_sec"]) == {*PHASES} - {"other-shapes", "pack"}  # the file fixes its shapes
    json.dumps([artifact.report, artifact.manifest], allow_nan=False)


def test_a_second_compile_uses_what_the_first_one_compiled_and_checked(
    tiny_net: TunedNet, tmp_path: Path
) -> None:
    known: dict[str, Any] = {}

    def spans_of_compile(name: str) -> tuple[Counter[str], int]:
        """Return how often each child's function was called, and LLVM was used."""
        findings = Findings(known.get, objects=tmp_path / "objects")
        with recording() as log:
            artifact = tunefarm_tuning.compile(
                tiny_net.model,
                output=tmp_path / name,
                history=History(tiny_net.records, findings),
                limits=TAKE_ANY_SPEED,
            )
        assert len(artifact.report["coverage"]["hits"]) == len(tiny_net.records)
        assert artifact.report["checks"]["ok"], "outputs are compared in every compile"
        known.update(findings.noted)
        calls = Counter(noted.name for noted in log.spans if noted.kind is SpanKind.CALL)
        return calls, sum(noted.kind is SpanKind.LLVM for noted in log.spans)

    calls, compiled = spans_of_compile("first")
    assert calls["compile: build_kernel"] == 2 * len(tiny_net.records)
    assert compiled > 0
    calls, compiled = spans_of_compile("second")
    assert compiled == 0
    assert calls["compile: build_kernel"] == calls["run: compare_kernel"] == 0
    assert calls["compile: build_model"] in (1, 2), (
        "the tuned network, and the untuned one unless it was timed"
    )
    assert calls["run: check_model"] == calls["artifact: check"] > 0


def test_the_loaded_artifact_answers_as_the_model_does(
    tiny_net: TunedNet, compiled: tuple[Artifact, Coverage]
) -> None:
    x = np.random.default_rng(3).standard_normal((1, 64)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(tiny_net.model.path)).run(None, {"x": x})[0]
    tuned = load(compiled[0].path, threads=1)
    np.testing.assert_allclose(tuned(x)["y"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tuned.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
    assert tuned.threads == 1


def test_verify_and_evaluate(tiny_net: TunedNet, compiled: tuple[Artifact, Coverage]) -> None:
    path = compiled[0].path
    report = verify(path, tiny_net.model, seed=5)
    assert report.ok
    assert report.max_abs_error < 1e-4
    assert len(report.outputs) == 2
    latency = tunefarm_tuning.evaluate(path, repeat=3, threads=1)
    assert len(latency.samples_sec) == 3
    assert latency.threads == 1
    other = verify(path, tiny_net.other_weights)  # says it is the same file by its sha256, but is not
    assert not other.ok
    assert "outside the tolerance" in other.message
    with pytest.raises(InvalidInputError) as caught:
        verify(path, replace(tiny_net.model, sha256="0" * 64))
    assert caught.value.code == "other-model"


def test_records_that_do_not_hold_are_missed_with_their_reason(tiny_net: TunedNet, tmp_path: Path) -> None:
    first, second, third = tiny_net.records
    history = History(
        [
            replace(first, space_key="0" * 32),
            replace(second, config=Config(second.config.sketch, (3,))),
            replace(third, toolchain="tvm-0.1"),
        ]
    )
    tunefarm_tuning.compile(
        tiny_net.model, output=tmp_path / "a.tunefarm", history=history, baseline=False, limits=TAKE_ANY_SPEED
    )
    assert history.coverage.hits == ()
    assert [miss.reason for miss in history.coverage.misses] == [
        MissReason.SPACE_CHANGED,
        MissReason.DOES_NOT_APPLY,
        MissReason.OTHER_TOOLCHAIN,
    ]
    assert all(miss.message for miss in history.coverage.misses)


@pytest.mark.exhaustive
def test_other_algorithms_are_tried_without_any_record(tmp_path: Path) -> None:
    graph = GraphBuilder()
    graph.output(graph.node("Relu", graph.conv(graph.input("x", [1, 64, 56, 56]), 64, 64)))
    onnx.save(graph.model(), tmp_path / "net.onnx")
    artifact = tunefarm_tuning.compile(
        import_model(tmp_path / "net.onnx"), output=tmp_path / "a.tunefarm", baseline=False
    )
    candidates = artifact.report["alternatives"]["candidates"]
    assert [candidate["algorithm"] for candidate in candidates] == ["winograd-4"]
    assert candidates[0]["direct_sec"], "the direct kernel was timed to compare"
    assert artifact.report["checks"]["ok"]
    assert artifact.report["records"] == []


@pytest.mark.exhaustive
def test_a_goal_leaves_out_timings_and_no_check(tiny_net: TunedNet, tmp_path: Path) -> None:
    timed, kernels = [], []
    for goal_sec in (None, 0.0):
        findings = Findings()
        artifact = tunefarm_tuning.compile(
            tiny_net.model,
            output=tmp_path / "a.tunefarm",
            history=History(tiny_net.records[:1], findings),
            baseline=False,
            limits=TAKE_ANY_SPEED,
            goal_sec=goal_sec,
        )
        timed.append(sum("calls_sec" in finding for finding in findings.noted.values()))
        kernels.append(sum("comparisons" in finding for finding in findings.noted.values()))
        assert artifact.report["checks"]["ok"]
    assert timed == [len(tiny_net.records) - 1, 0], "the untuned kernels of tasks without a record"
    assert kernels == [1, 1]


@pytest.mark.exhaustive
def test_a_record_of_a_space_that_is_gone_gives_way_to_one_whose_space_is_there(
    tiny_net: TunedNet, tmp_path: Path
) -> None:
    first = tiny_net.records[0]
    gone = replace(first, space_key="0" * 32, measured_at=first.measured_at + 1.0, samples_sec=(1e-9,))
    history = History([gone, first])
    assert history.find(
        first.workload_key,
        target_key=first.target_key,
        device_model=first.device_model,
        toolchain=first.toolchain,
    ) == (gone, None, "")
    tunefarm_tuning.compile(
        tiny_net.model, output=tmp_path / "a.tunefarm", history=history, baseline=False, limits=TAKE_ANY_SPEED
    )
    (hit,) = history.coverage.hits
    assert hit.workload_key == first.workload_key
    assert hit.record_cost_sec == first.cost_sec


@pytest.mark.exhaustive
def test_over_rpc(tiny_net: TunedNet, tmp_path: Path) -> None:
    records = tiny_net.records_of("test")[:2]
    path = tmp_path / "remote.tunefarm"
    with local_rpc() as farm, apply_history_best(records) as history:
        artifact = tunefarm_tuning.compile(
            tiny_net.model, output=path, device=farm.device, limits=TAKE_ANY_SPEED
        )
        assert len(history.coverage.hits) == 2
        assert [miss.reason for miss in history.coverage.misses] == [MissReason.NO_RECORD]
        alone = artifact.report["kernels"][2]
        assert (len(alone["untuned_sec"]), alone["tuned_sec"]) == (3, [])
        assert artifact.report["place"]["this_machine"] is False
        disturbance = artifact.report["latency"]["tuned"]["disturbance"]
        assert (disturbance["others_cores"], disturbance["slowdown"]) == (None, 1.0), (
            "TVM's own server tells nothing"
        )
        assert artifact.report["latency"]["onnxruntime"] is None
        assert "another machine" in artifact.report["latency"]["onnxruntime_missing"]
        assert artifact.manifest["device_model"] == "test"
        assert artifact.manifest["threads"] == 1
        assert verify(path, tiny_net.model, device=farm.device).ok
        assert len(tunefarm_tuning.evaluate(path, device=farm.device, repeat=2).samples_sec) == 2


def job(tiny_net: TunedNet, folder: Path, limits: CompileLimits, reference: Model) -> CompileJob:
    def make_reference(_: Model, *args: Any, **kwargs: Any) -> Reference:
        return Reference(reference, *args, **kwargs)

    folder.mkdir()
    cancellation = Cancellation()
    request = CompileRequest(
        model=tiny_net.model,
        target=parse_target("host"),
        history=History(tiny_net.records),
        device=None,
        name="tiny",
        baseline=False,
        limits=limits,
        seed=0,
        folder=folder,
        progress=Progress(lambda _phase, _done: None, cancellation),
        cancellation=cancellation,
    )
    return CompileJob(request=request, make_reference=make_reference)


@pytest.mark.exhaustive
def test_a_network_that_is_wrong_even_untuned_is_never_written(tiny_net: TunedNet, tmp_path: Path) -> None:
    wrong = job(tiny_net, tmp_path / "work", TAKE_ANY_SPEED, reference=tiny_net.other_weights)
    with pytest.raises(InvalidModelError) as caught:
        wrong.run(tmp_path / "a.tunefarm")
    assert caught.value.code == "wrong-output"
    assert not caught.value.fields["checks"]["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_tuned_network_that_is_wrong_leaves_out_all_its_kernels(tiny_net: TunedNet, tmp_path: Path) -> None:
    wrong = job(tiny_net, tmp_path / "work", TAKE_ANY_SPEED, reference=tiny_net.other_weights)
    with ExitStack() as stack:
        loaded = load_model(wrong.request, stack, wrong.open_compiler, wrong.make_reference)
        checked = check_kernels(wrong.request, loaded)
        built = build_models(wrong.request, loaded, checked)
        fallback = check_tuned(wrong.request, loaded, built, wrong.open_compiler)
    assert isinstance(fallback, Fallback)
    kernels = final_kernels(checked.direct, built.alternatives, fallback)
    assert {kernel.miss.reason for kernel in kernels if kernel.miss} == {MissReason.WRONG_ANSWER}


def test_a_network_that_got_slower_falls_back_as_a_whole(tiny_net: TunedNet, tmp_path: Path) -> None:
    slow = job(
        tiny_net,
        tmp_path / "work",
        CompileLimits(kernel_ratio=1e9, model_ratio=0.0, timing_sec=0),
        reference=tiny_net.model,
    )
    artifact = slow.run(tmp_path / "a.tunefarm")
    assert slow.request.history.coverage.hits == ()
    reasons = {miss["reason"] for miss in artifact.report["fallbacks"]}
    assert reasons == {"slower-than-untuned"}
    assert artifact.report["latency"]["tuned"] == artifact.report["latency"]["untuned"]
    assert artifact.report["latency"]["rejected"] is not None
    assert "all kernels fell back" in artifact.report["warnings"][0]
    assert artifact.manifest["records"] == []


class WrongDefaults(CompileSession):
    """Default schedules that compute something else: another function's."""

    def __init__(self, model: Model, *args: Any, wrong: Model) -> None:
        super().__init__(model, *args)
        self._other = CompileSession(wrong, *args)

    def build_kernel(self, name: str, path: Path, record: TuningRecord | None, **how: bool) -> None:
        if record is not None or not how.get("default_schedules", True):
            super().build_kernel(name, path, record, **how)
        else:
            self._other.build_kernel(self._other.load().tasks[0].name, path, None)

    def build_model(
        self, path: Path, records: Mapping[str, TuningRecord], *, default_schedules: bool = True
    ) -> None:
        if records or not default_schedules:
            super().build_model(path, records, default_schedules=default_schedules)
        else:
            self._other.build_model(path, {})

    def close(self) -> None:
        self._other.close()
        super().close()


def bent_job(tiny_net: TunedNet, folder: Path, history: History) -> CompileJob:
    right = job(tiny_net, folder, TAKE_ANY_SPEED, reference=tiny_net.model)
    return replace(
        right,
        request=replace(right.request, history=history),
        make_compiler=partial(WrongDefaults, wrong=tiny_net.other_function),
    )


@pytest.mark.exhaustive
def test_wrong_default_schedules_cost_no_tuned_kernel(tiny_net: TunedNet, tmp_path: Path) -> None:
    bent = bent_job(tiny_net, tmp_path / "work", History(tiny_net.records[:1]))
    artifact = bent.run(tmp_path / "a.tunefarm")
    assert [hit.workload_key for hit in bent.request.history.coverage.hits] == [
        tiny_net.records[0].workload_key
    ]
    assert artifact.report["checks"]["ok"]


def test_wrong_default_schedules_give_way_to_plain_loops(tiny_net: TunedNet, tmp_path: Path) -> None:
    bent = bent_job(tiny_net, tmp_path / "work", History([]))
    artifact = bent.run(tmp_path / "a.tunefarm")
    assert artifact.report["checks"]["ok"]
    (warning,) = artifact.report["warnings"]
    assert "default schedules were left out" in warning
    assert verify(artifact.path, tiny_net.model).ok


@pytest.mark.parametrize("phase", ["load", "check-kernels"])
def test_a_cancel_ends_it_and_leaves_nothing(tiny_net: TunedNet, tmp_path: Path, phase: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    cancellation = Cancellation()
    timers: list[threading.Timer] = []

    def cancel_soon(at: str, done: float) -> None:
        if at == phase and done == 0.0:
            timers.append(threading.Timer(0.5, cancellation.cancel))
            timers[0].start()

    with pytest.raises(CancelledError):
        tunefarm_tuning.compile(
            tiny_net.model,
            output=tmp_path / "a.tunefarm",
            history=History(tiny_net.records),
            on_progress=cancel_soon,
            cancellation=cancellation,
        )
    timers[0].join()
    assert list(tmp_path.iterdir()) == []
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.exhaustive
def test_a_file_that_changed_under_its_model_is_an_error(tiny_net: TunedNet, tmp_path: Path) -> None:
    path = tmp_path / "changed.onnx"
    path.write_bytes(tiny_net.model.path.read_bytes()[:1000])
    with pytest.raises(InvalidModelError):
        tunefarm_tuning.compile(replace(tiny_net.model, path=path), output=tmp_path / "a.tunefarm")
    assert not (tmp_path / "a.tunefarm").exists()


def test_the_folder_has_to_be_there(tiny_net: TunedNet, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        tunefarm_tuning.compile(tiny_net.model, output=tmp_path / "no" / "a.tunefarm")
    assert caught.value.code == "no-such-folder"

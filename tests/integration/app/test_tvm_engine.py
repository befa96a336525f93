"""The steps with real TVM: a model is imported, tuned over RPC, compiled and checked."""

from __future__ import annotations

import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from app_farm import farm_settings, make_farm
from html_page import Page
from hybrid_models import between_products
from onnx_models import GraphBuilder
from waiting import wait_until

from tunefarm_app.engines.tvm import TvmEngine
from tunefarm_app.identity.tickets import GatewayWay
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.measure_again import measure_again, measuring_of
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.records.kernel_sources import Progress, source_of
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.page import report_page
from tunefarm_app.tuning.task_round import TaskRound
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Device, ModelState, StepKind
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.measure.runner.rpc import RpcRunner
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.testing.local_rpc import LocalRpc, local_rpc


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Any]:
    settings = farm_settings(
        tmp_path,
        build_workers=1,
    )
    before = _children()  # of other tests in this run
    farm = make_farm(settings, TvmEngine(settings, reach=_reach))
    yield farm
    farm.services.close()
    # A killed process disappears after a moment.
    wait_until(
        lambda: _children() <= before, lambda: f"the end of {_children() - before}, which the engine left"
    )


def _children() -> set[str]:
    """Return process id and command line of our living children that run the engine's modules."""
    processes = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                command = (stat.parent / "cmdline").read_text().replace("\0", " ")
                processes.add(f"{stat.parent.name} {command}")
        except OSError:
            continue
    return {line for line in processes if "tunefarm_tuning.process" in line and "local_rpc" not in line}


@pytest.fixture
def tiny_model() -> bytes:
    graph = GraphBuilder()
    x = graph.input("x", [1, 32])
    hidden = graph.node("Relu", graph.node("MatMul", x, graph.weight(32, 64)))
    graph.output(graph.node("MatMul", hidden, graph.weight(64, 8)), [1, 8])
    data: bytes = graph.model().SerializeToString()
    return data


def check_measured_again(farm: Any, job_id: str) -> None:
    """The artifact is timed on the leased device, with its untuned network and ONNX Runtime beside it."""
    measure_again(farm.services, job_id)
    farm.run()
    with farm.services.uow.read() as repos:
        measuring = measuring_of(repos, job_id)
    assert (measuring.state, measuring.error) == ("idle", None)
    compiled, again = measuring.items
    assert (compiled.at_compile, again.at_compile) == (True, False)
    assert set(again.seconds) == set(compiled.seconds) == {"tuned", "untuned", "onnxruntime"}
    assert set(again.ratios) == {"untuned", "onnxruntime"}
    shown = next(taken for taken in measuring.items if taken.shown)
    assert farm.job(job_id).network_latency_sec == shown.seconds["tuned"]
    report = job_report(farm.services, job_id)
    assert not [warning for warning in report.warnings if "contradicts" in warning]


def imported(farm: Any, data: bytes, **shapes: list[int]) -> Any:
    model = farm.upload(data, **shapes)
    farm.run()
    return farm.model(model.id)


def add_this_machine(farm: Any, rpc: LocalRpc) -> None:
    farm.add_device(
        target=detect_host_target().to_json(),
        device_model=host_device_model(),
        info={"port": rpc.device.tracker_port},
        rpc_key=rpc.device.key,
    )


def _reach(device: Device, _gateway: GatewayWay | None) -> RemoteDevice:
    """Return the address of `local_rpc`, which is behind no gateway."""
    cores = device.target.get("num-cores")
    return RemoteDevice(
        tracker_host="127.0.0.1",
        tracker_port=device.info["port"],
        key=device.rpc_key,
        info=DeviceInfo(
            model=device.device_model, num_cores=cores if isinstance(cores, int) else 1, name=device.name
        ),
        fence=device.fence,
        clock_mhz=(device.calibration or {}).get("clock_mhz"),
    )


def test_a_whole_job_on_tvm(farm: Any, tiny_model: bytes) -> None:
    model = imported(farm, tiny_model)
    assert model.state is ModelState.READY, model.error
    assert model.operators == [["MatMul", 2], ["Relu", 1]]
    with farm.services.uow.read() as repos:
        assert len(repos.models.tasks(model.id)) >= 2
    with local_rpc() as rpc:
        add_this_machine(farm, rpc)
        job = farm.submit(model, trials=12, round_size=4)
        farm.run()
        job = farm.job(job.id)
        assert job.state is JobState.SUCCEEDED, job.error
        assert job.trials == 12
        with farm.services.uow.read() as repos:
            artifact = repos.artifacts.for_job(job.id)
            outcomes = {t.outcome for t in repos.trials.page(job.id, limit=500).items}
            records = repos.records.for_job(job.id)
            confirmed = [e.data for e in repos.events.after(job.id) if e.kind == "confirmed"]
        assert "ok" in outcomes
        assert sum(not record.confirmed for record in records) == 12
        # Whether there is doubt depends on the machine's noise; what was confirmed is on record, and went well.
        assert all(data["failed"] is None for data in confirmed), confirmed
        assert sum(data["outcomes"]["ok"] for data in confirmed) == sum(
            record.confirmed for record in records
        )
        assert artifact is not None
        assert artifact.report["checks"]
        check_report(farm, job.id)
        check_source(farm, job.id)
        path = farm.services.blobs.path(artifact.sha256)
        assert zipfile.is_zipfile(path)
        assert json.dumps(artifact.manifest)
        check_measured_again(farm, job.id)

        # A second job knows the tasks, and is cancelled within seconds while the compiler works.
        second = farm.submit(model, trials=1)
        thread = threading.Thread(target=farm.run)
        thread.start()
        wait_until(
            lambda: farm.job(second.id).progress.get("step") or not thread.is_alive(), "the compiler to work"
        )
        assert thread.is_alive(), farm.job(second.id).error
        cancel_job(farm.services, second.id)
        thread.join(120)
        assert not thread.is_alive()
        assert farm.job(second.id).state is JobState.CANCELLED
        with farm.services.uow.read() as repos:
            assert repos.artifacts.for_job(second.id) is None
            assert repos.devices.in_pool("pool")[0].lease_owner is None


@pytest.mark.exhaustive
def test_a_draft_is_compiled_and_checked_without_the_device(
    farm: Any, tiny_model: bytes, tmp_path: Path
) -> None:
    model = imported(farm, tiny_model)
    farm.add_device(target=detect_host_target().to_json(), device_model=host_device_model())
    farm = farm.with_settings(max_drafts_bytes=1 << 30)
    job = farm.submit(model, trials=12)
    farm.run(steps=1)
    with farm.services.uow.read() as repos:
        step = repos.steps.find(StepKind.DRAFT, job.id)
    assert step is not None
    farm.inbox.messages[:] = [step.id]  # nothing else is to run, so that it gives way to nothing
    farm.run()
    with farm.services.uow.read() as repos:
        draft = repos.drafts.of([job.id])[job.id]
    assert (draft.covered, draft.tasks) == (0, 2)
    path = tmp_path / draft.name
    path.write_bytes(farm.services.blobs.path(draft.sha256).read_bytes())
    with zipfile.ZipFile(path) as archive:
        report = json.loads(archive.read("report.json"))
    assert report["checks"]["ok"]
    assert len(report["latency"]["untuned"]["samples_sec"]) <= 4
    (tmp_path / "net.onnx").write_bytes(tiny_model)
    x = np.random.default_rng(7).standard_normal((1, 32)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(str(tmp_path / "net.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(next(iter(load(path)(x).values())), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_a_search_times_its_network_with_the_kernels_so_far(
    farm: Any, tiny_model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tunefarm_app.engines.tvm.in_background", nullcontext
    )  # nothing goes on beside it here
    monkeypatch.setattr("tunefarm_app.jobs.drafts.expected_sec", lambda **_: 0.0)
    monkeypatch.setattr("tunefarm_app.jobs.network_timings._LEAST_GAIN", -9.0)  # whatever the kernels promise
    model = imported(farm, tiny_model)
    timings = {"network_timing_after_sec": 0.0, "network_timing_share": 1e6}
    farm = farm.with_settings(max_drafts_bytes=1 << 30, **timings)

    def rounds(trials: int) -> None:
        """Run rounds alone, until the job has so many trials."""
        waiting = farm.inbox.messages[:]
        while farm.job(job.id).trials < trials:
            farm.inbox.messages[:] = [message for message in waiting if farm.inbox.queues[message] != "draft"]
            farm.run(steps=1)
            waiting = [m for m in waiting if farm.inbox.queues[m] == "draft"] + farm.inbox.messages
        farm.inbox.messages[:] = waiting

    def draft(number: int) -> None:
        with farm.services.uow.read() as repos:
            step = repos.steps.find(StepKind.DRAFT, job.id, number)
        assert step is not None
        # Nothing else is to wait for a worker, so that it gives way to nothing.
        waiting = [message for message in farm.inbox.messages if message != step.id]
        farm.inbox.messages[:] = [step.id]
        farm.run()
        farm.inbox.messages += waiting

    with local_rpc() as rpc:
        add_this_machine(farm, rpc)
        farm = farm.with_settings(step_chain_sec=0.0)  # each round is a message
        job = farm.submit(model, trials=24, round_size=4)
        farm.run(steps=1)
        draft(0)
        rounds(4)
        with farm.services.uow.read() as repos:
            (untuned,) = repos.network_timings.of(job.id)
        assert untuned.error is None
        assert untuned.latency_sec is not None
        assert 1e-7 < untuned.low_sec <= untuned.latency_sec <= untuned.high_sec < 1e-2
        assert farm.job(job.id).network_latency_sec == untuned.latency_sec
        draft(1)
        rounds(8)
        with farm.services.uow.read() as repos:
            tuned = repos.network_timings.of(job.id)[1]
        assert (tuned.error, tuned.covered > 0) == (None, True)
        assert tuned.latency_sec is not None
        farm.run_until_quiet()
        assert farm.job(job.id).state is JobState.SUCCEEDED
    assert len(job_report(farm.services, job.id).networks) >= 2


@pytest.mark.exhaustive
def test_a_job_for_a_network_that_onnx_runtime_runs_in_part(farm: Any, tmp_path: Path) -> None:
    model = imported(farm, between_products().SerializeToString())
    assert model.state is ModelState.READY, model.error
    (part,) = model.parts
    assert part["reasons"][0]["node"] == "'say'"
    server = (
        *(sys.executable, "-m", "tunefarm_workers.device.hardened_server"),
        *("--tracker", "{tracker}", "--key", "{key}", "--work-dir", str(tmp_path / "sessions")),
    )
    with local_rpc(server_command=server) as rpc:
        add_this_machine(farm, rpc)
        job = farm.submit(model, trials=4, round_size=4)
        farm.run()
        job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED, job.error
    report = job_report(farm.services, job.id)
    assert report.hybrid is not None
    assert report.hybrid.parts[0].operators == [["Cast", 2]]
    share = report.hybrid.onnxruntime_share
    assert share is not None
    assert 0 < share <= 1
    assert any("ONNX Runtime runs 2 nodes of the network" in sentence for sentence in report.summary)
    assert "part_1.onnx" in report_page(report)


def check_source(farm: Any, job_id: str) -> None:
    """Check that a worker makes the source of a kernel of its record, after the fact, and without a device."""
    with farm.services.uow.read() as repos:
        position = next(task.position for task in repos.jobs.tasks(job_id) if task.best_cost_sec)
    assert source_of(farm.services, job_id, position, ask=True).progress is Progress.MAKING
    farm.run()
    view = source_of(farm.services, job_id, position, ask=False)
    assert view.source is not None, view.error
    assert view.source.kinds == ("schedule", "llvm", "asm")
    assert "T.prim_func" in view.source.text("schedule")
    assert "define " in view.source.text("llvm")


def check_report(farm: Any, job_id: str) -> None:
    """Check that the real compiler's evidence is all in the job's report, and in its page."""
    report = job_report(farm.services, job_id)
    # What the machine's noise decides: latencies may be rough, and twelve trials may find nothing that is faster than untuned kernels.
    expected = (
        "rough",
        "untuned: the whole",
        "fell back to untuned: the network took",
        "the timings of the whole network do not tell",
    )
    assert not [text for text in report.warnings if not any(words in text for words in expected)]
    assert report.latency is not None
    assert report.latency.onnxruntime is not None
    assert report.checks is not None
    assert report.checks.ok
    assert report.checks.max_abs_error == max(
        output.max_abs_error for input_set in report.checks.input_sets for output in input_set.outputs
    )
    assert report.coverage is not None
    assert report.coverage.tasks == len(report.kernels) >= 2
    covered = [kernel for kernel in report.kernels if kernel.covered]
    assert len(covered) == report.coverage.covered == len(report.records)
    assert all(kernel.before_sec and kernel.after_sec and kernel.args for kernel in covered)
    assert sum(report.outcomes.values()) == 12
    assert {record.job_id for record in report.records} <= {job_id}
    assert all(record.record_id and record.samples_sec for record in report.records)
    assert {"latency", "untuned", "onnxruntime", "kernels", "outputs"} == set(report.method)
    assert report.device is not None
    assert report.place is not None
    assert report.place.device_model == report.device.device_model == host_device_model()
    page = Page(report_page(report))
    assert page.row("latency", "ONNX Runtime")[1].split()[1] in ("s", "ms", "µs")
    assert len(page.tables.get("records", [[]])) == 1 + len(report.records)
    for sentence in report.method.values():
        assert " ".join(sentence.split()) in page.text


@pytest.mark.parametrize("data", [b"\x08\x07garbage that is no protobuf", b"\x3a\xff\xff\xff\xff\x07"])
def test_a_bad_file_fails_its_model_at_the_first_try(farm: Any, data: bytes) -> None:
    model = imported(farm, data)
    assert model.state is ModelState.FAILED
    assert model.error["kind"] == "InvalidModelError"
    assert model.error["message"]
    assert farm.inbox.messages == []


@pytest.mark.exhaustive
def test_an_unknown_dimension_is_named(farm: Any) -> None:
    graph = GraphBuilder()
    x = graph.input("x", ["batch", 8])
    graph.output(graph.node("MatMul", x, graph.weight(8, 4)), ["batch", 4])
    data = graph.model().SerializeToString()
    model = imported(farm, data)
    assert model.error["code"] == "unknown-dimension"
    assert "batch" in model.error["message"]
    bound = imported(farm, data, x=[2, 8])
    assert bound.state is ModelState.READY
    assert bound.inputs[0]["shape"] == [2, 8]


@pytest.mark.exhaustive
def test_rounds_overlap_where_the_device_is_another_machine(
    farm: Any, tiny_model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_on: list[bool] = []
    measure = TaskRound.measure

    def watched(self: TaskRound, context: StepContext, *args: Any, **how: Any) -> Any:
        handed_on.append(self._context is not context)
        return measure(self, context, *args, **how)

    monkeypatch.setattr(TaskRound, "measure", watched)
    monkeypatch.setattr(RpcRunner, "shares_host", False)  # it is this one in fact
    model = imported(farm, tiny_model)
    with local_rpc() as rpc:
        add_this_machine(farm, rpc)
        job = farm.submit(model, trials=20, round_size=4)
        farm.with_settings(step_turn_sec=3600.0, step_chain_sec=3600.0).run()
        job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED, job.error
    assert job.trials == 20
    assert len({(trial.position, trial.config_key) for trial in farm.trials(job.id)}) == 20
    assert any(handed_on)

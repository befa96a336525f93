"""Records in MetaSchedule's database: TVM's own flow applies ours, and ours applies TVM's."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunefarm_tuning
from tunefarm_tuning import (
    ImportedDatabase,
    TuningRecord,
    apply_history_best,
    export_metaschedule,
    extract_tasks,
    import_metaschedule,
)
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.metaschedule import RECORDS, WORKLOADS
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.testing.records import TunedNet
from tunefarm_tuning.testing.workloads import sample_workload
from tunefarm_tuning.workload.task import Workload

tvm = pytest.importorskip("tvm")

CPU = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
ANY_SPEED = CompileLimits(kernel_ratio=1e9, model_ratio=1e9, timing_sec=0)
TRIALS = 4


def design_space(workload: Workload, target: Target = CPU) -> Any:
    from tunefarm_tuning.tvm.base.serialization import module_from_text
    from tunefarm_tuning.tvm.space.design_space import DesignSpace

    return DesignSpace(module_from_text(workload.ir), target)


def records_of(workload: Workload, count: int, target: Target = CPU) -> list[TuningRecord]:
    """Return records of random configs as applied, the first one the fastest."""
    space = design_space(workload, target)
    configs = {
        space.apply(config)[1] for config in space.config_space.sample(np.random.default_rng(0), count)
    }
    return [
        TuningRecord(
            workload_key=workload.key,
            target_key=target.key,
            device_model="a machine",
            toolchain=toolchain_key(),
            space_key=space.config_space.key,
            config=config,
            outcome=Outcome.OK,
            samples_sec=(1e-5 * (position + 1),),
            build_sec=0.1,
            measured_at=1.0,
        )
        for position, config in enumerate(sorted(configs, key=lambda config: config.key))
    ]


@pytest.fixture(scope="module")
def tvms_database(tiny_net: TunedNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a search of TVM's own for the first kernel of the tiny network: stock, but for where it builds and its population."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from tunefarm_tuning.tvm.base.serialization import module_from_text
    from tunefarm_tuning.tvm.base.target import tvm_target
    from tunefarm_tuning.tvm.base.tensor_intrinsics import import_intrinsics

    folder = tmp_path_factory.mktemp("tvms-database")

    @derived_object
    class HereBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs: Any) -> list[Any]:
            results = []
            for given in build_inputs:
                module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(given.mod)
                path = tempfile.mkdtemp() + "/kernel.so"  # TVM deletes the folder
                tvm.tirx.build(module, given.target).export_library(path)
                results.append(ms.builder.BuilderResult(path, None))
            return results

    target = parse_target("host")
    import_intrinsics(target)  # the target's alone; TVM would import them all
    ms.tune_tir(
        module_from_text(extract_tasks(tiny_net.model, target)[0].workload.ir),
        tvm_target(target),
        work_dir=str(folder),
        max_trials_global=TRIALS,
        num_trials_per_iter=TRIALS,
        num_tuning_cores=1,
        builder=HereBuilder(),
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=32, init_min_unmeasured=8, genetic_num_iters=2
        ),
        seed=1,
    )
    return folder


@pytest.fixture
def database(tvms_database: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(tvms_database, tmp_path / "database")


def read(folder: Path) -> ImportedDatabase:
    return import_metaschedule(folder, device_model=host_device_model())


def test_a_record_of_tvms_own_search_is_compiled_into_the_network(
    tiny_net: TunedNet, tvms_database: Path, tmp_path: Path
) -> None:
    imported = read(tvms_database)
    task = extract_tasks(tiny_net.model)[0]
    assert imported.left_out == {}
    assert len(imported.records) == TRIALS
    assert {record.workload_key for record in imported.records} == {task.workload.key}
    assert {record.target_key for record in imported.records} == {task.target.key}
    lines = (tvms_database / RECORDS).read_text().splitlines()
    assert [record.samples_sec for record in imported.records] == [
        tuple(json.loads(line)[1][1]) for line in lines
    ]
    with apply_history_best(imported.records) as history:
        artifact = tunefarm_tuning.compile(tiny_net.model, output=tmp_path / "net", limits=ANY_SPEED)
    fastest = min(imported.records, key=lambda record: record.cost_sec or 0)
    assert [hit.workload_key for hit in history.coverage.hits] == [task.workload.key]
    assert [record["config"] for record in artifact.report["records"]] == [fastest.config.to_json()]
    assert artifact.report["checks"]["ok"]


def test_tvms_own_flow_applies_a_record_of_ours(tmp_path: Path) -> None:
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm_ffi import structural_equal

    from tunefarm_tuning.tvm.base.serialization import module_from_text
    from tunefarm_tuning.tvm.base.target import tvm_target

    workload = sample_workload("matmul", n=64)
    records = records_of(workload, 8)
    exported = export_metaschedule(records, [workload], tmp_path / "database")
    assert (exported.records, exported.left_out) == (len(records), {})
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "database"), allow_missing=False)
    module, machine = module_from_text(workload.ir), tvm_target(CPU)
    ours, _ = design_space(workload).apply(records[0].config)
    theirs = database.query_schedule(module, machine, "main")
    assert structural_equal(theirs.mod, ours.mod)

    a, b = (relax.Var(name, relax.TensorType((64, 64), "float32")) for name in "ab")
    builder = relax.BlockBuilder()
    kernel = builder.add_func(module["main"].without_attr("global_symbol"), "matmul")
    with builder.function("main", [a, b]):
        product = builder.emit(relax.call_tir(kernel, [a, b], out_ty=a.ty))
        builder.emit_func_output(product)
    network = builder.get()
    with database, machine, tvm.transform.PassContext(opt_level=3):
        applied = relax.transform.MetaScheduleApplyDatabase(enable_warning=True)(network)
    assert applied["matmul"].attrs["tirx.is_scheduled"]
    library = relax.build(applied, machine)
    values = [np.random.default_rng(seed).random((64, 64), dtype=np.float32) for seed in (1, 2)]
    result = relax.VirtualMachine(library, tvm.cpu())["main"](
        *(tvm.runtime.tensor(value) for value in values)
    )
    np.testing.assert_allclose(result.numpy(), values[0] @ values[1], rtol=1e-4)


@pytest.mark.exhaustive
def test_what_goes_out_comes_back(tmp_path: Path) -> None:
    """Kernels that share their work among threads, and such that run on one, as the smallest always do."""
    workloads = [
        sample_workload("matmul", n=64),
        sample_workload("conv2d", size=14, channels=16),
        sample_workload("matmul", n=8),
    ]
    records = [record for workload in workloads for record in records_of(workload, 6)]
    assert {record.config.decisions[-1] for record in records[:6]} == {0, 1}, "with threads, and without"
    assert export_metaschedule(records, workloads, tmp_path).records == len(records)
    imported = import_metaschedule(tmp_path, device_model="a machine")
    assert imported.left_out == {}
    assert [
        replace(record, tuner="", build_sec=0.1, measured_at=1.0) for record in imported.records
    ] == records


def test_records_that_tvm_cannot_hold_are_counted(tmp_path: Path) -> None:
    even, uneven = sample_workload("matmul", n=64), sample_workload("matmul", n=61)
    record, *_ = records_of(even, 1)
    tails = [record for record in records_of(uneven, 12) if design_space(uneven).leaves_tails(record.config)]
    assert tails, "a prime extent has no good tile without a tail"
    given = [
        record,
        tails[0],
        replace(record, outcome=Outcome.RUN_ERROR, samples_sec=()),
        replace(record, toolchain="tvm-0.1"),
        replace(record, workload_key="another"),
        replace(record, space_key="older"),
    ]
    exported = export_metaschedule(given, [even, uneven], tmp_path)
    assert exported.records == 1
    assert exported.left_out == dict.fromkeys(
        ("no-trace", "failed", "other-toolchain", "no-workload", "space-changed"), 1
    )
    with pytest.raises(InvalidInputError, match="name another folder") as refused:
        export_metaschedule(given, [even], tmp_path)
    assert refused.value.code == "output-exists"


def test_a_confirmed_config_goes_out_with_its_confirmation_alone(tmp_path: Path) -> None:
    workload = sample_workload("matmul", n=64)
    lucky, *_ = records_of(workload, 1)
    confirmed = replace(lucky, samples_sec=(3e-5,), measured_at=2.0, extra={"confirmed": True})
    exported = export_metaschedule([lucky, confirmed], [workload], tmp_path)
    assert (exported.records, exported.left_out) == (1, {"superseded": 1})
    assert json.loads((tmp_path / RECORDS).read_text())[1][1] == [3e-5]


@pytest.mark.exhaustive
def test_records_of_no_config_are_counted(database: Path) -> None:
    workload, (trace, run_secs, target, args) = json.loads((database / RECORDS).read_text().splitlines()[0])
    parallel = json.loads(json.dumps(trace).replace('"meta_schedule.unroll_explicit"', '"another.mark"'))
    lines = [
        [workload, [trace, run_secs, target, args]],
        [workload, [parallel, run_secs, target, args]],
        [workload, [[[["NoSuchInstruction", [], [], []]], []], run_secs, target, args]],
        [workload, [trace, [1e10], target, args]],
        [workload, [trace, None, target, args]],
        [workload, [trace, run_secs, None, args]],
        [workload, [trace, run_secs, {"kind": "vulkan"}, args]],
    ]
    (database / RECORDS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    imported = read(database)
    assert len(imported.records) == 1
    assert imported.left_out == {"no-config": 2, "not-measured": 2, "no-target": 1, "unknown-target": 1}
    with_target = import_metaschedule(database, device_model="m", target="host")
    assert len(with_target.records) == 2


def test_a_database_of_another_tvm_is_refused(database: Path) -> None:
    (_, text), *_ = (json.loads(line) for line in (database / WORKLOADS).read_text().splitlines())
    (database / WORKLOADS).write_text(json.dumps(["12345", text]) + "\n")
    with pytest.raises(InvalidInputError, match="another version of TVM wrote the database") as refused:
        read(database)
    assert refused.value.code == "database-of-other-tvm"

"""The tuning engine: import, tasks, search, measurement, records, compile. It knows no service.

The way of a network:

1. `frontend.importing` checks a file in children (`frontend.onnx.check_child`, `tvm.children.import_network`) and returns a
   `workload.model.Model`; `frontend.extraction` returns its `workload.task.TuningTask`, one for each kernel (`tvm.tasks.extract`).
2. `search.tune` has a `tuner` propose configs of a task's `space`, and `measure` build and time them on a `target`. What it learns are
   `records`.
3. `compiler.compile` takes the best records, builds the network (`tvm.codegen`), checks it against the `reference`, times it, and has
   `artifact.pack` write it. `artifact.loader` runs it anywhere; `provenance` says whose it is.

Every public name can be had from here. Its module is imported when the name is first asked for, so that
``import tunefarm_tuning`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefarm_tuning.compiler.compile import Artifact as Artifact
    from tunefarm_tuning.compiler.compile import compile as compile  # noqa: A004  (AutoTVM users know it by this name)
    from tunefarm_tuning.compiler.evaluate import Latency as Latency
    from tunefarm_tuning.compiler.evaluate import evaluate as evaluate
    from tunefarm_tuning.compiler.kernel_source import KernelSource as KernelSource
    from tunefarm_tuning.compiler.kernel_source import SourceText as SourceText
    from tunefarm_tuning.compiler.kernel_source import kernel_source as kernel_source
    from tunefarm_tuning.compiler.verify import VerifyReport as VerifyReport
    from tunefarm_tuning.compiler.verify import verify as verify
    from tunefarm_tuning.core.errors import TunefarmError as TunefarmError
    from tunefarm_tuning.core.outcome import Outcome as Outcome
    from tunefarm_tuning.frontend.conversion import import_stablehlo as import_stablehlo
    from tunefarm_tuning.frontend.conversion import import_tflite as import_tflite
    from tunefarm_tuning.frontend.extraction import extract_tasks as extract_tasks
    from tunefarm_tuning.frontend.importing import import_model as import_model
    from tunefarm_tuning.frontend.quantising import quantise_model as quantise_model
    from tunefarm_tuning.frontend.single_file import write_single_file as write_single_file
    from tunefarm_tuning.frontend.torch import import_torch as import_torch
    from tunefarm_tuning.measure.builder.local import LocalBuilder as LocalBuilder
    from tunefarm_tuning.measure.builder.replay import ReplayBuilder as ReplayBuilder
    from tunefarm_tuning.measure.device import RemoteDevice as RemoteDevice
    from tunefarm_tuning.measure.interfaces import Builder as Builder
    from tunefarm_tuning.measure.interfaces import DeviceInfo as DeviceInfo
    from tunefarm_tuning.measure.interfaces import MeasureOption as MeasureOption
    from tunefarm_tuning.measure.interfaces import Runner as Runner
    from tunefarm_tuning.measure.interfaces import TimingOption as TimingOption
    from tunefarm_tuning.measure.peak import Peak as Peak
    from tunefarm_tuning.measure.peak import measure_peak as measure_peak
    from tunefarm_tuning.measure.roofline import Roofline as Roofline
    from tunefarm_tuning.measure.roofline import kernel_bytes as kernel_bytes
    from tunefarm_tuning.measure.roofline import roofline as roofline
    from tunefarm_tuning.measure.runner.local import LocalRunner as LocalRunner
    from tunefarm_tuning.measure.runner.replay import ReplayRunner as ReplayRunner
    from tunefarm_tuning.measure.runner.rpc import RpcRunner as RpcRunner
    from tunefarm_tuning.process.model_child import ImportLimits as ImportLimits
    from tunefarm_tuning.records.coverage import Coverage as Coverage
    from tunefarm_tuning.records.coverage import CoveredTask as CoveredTask
    from tunefarm_tuning.records.coverage import MissedTask as MissedTask
    from tunefarm_tuning.records.coverage import MissReason as MissReason
    from tunefarm_tuning.records.history import History as History
    from tunefarm_tuning.records.history import apply_history_best as apply_history_best
    from tunefarm_tuning.records.metaschedule import ExportedDatabase as ExportedDatabase
    from tunefarm_tuning.records.metaschedule import ImportedDatabase as ImportedDatabase
    from tunefarm_tuning.records.metaschedule import export_metaschedule as export_metaschedule
    from tunefarm_tuning.records.metaschedule import import_metaschedule as import_metaschedule
    from tunefarm_tuning.records.record import TuningRecord as TuningRecord
    from tunefarm_tuning.records.record import load_records as load_records
    from tunefarm_tuning.records.selection import pick_best as pick_best
    from tunefarm_tuning.records.transfer import TaskHistory as TaskHistory
    from tunefarm_tuning.reference.samples import SampleSummary as SampleSummary
    from tunefarm_tuning.reference.samples import check_samples as check_samples
    from tunefarm_tuning.search.budget import Budget as Budget
    from tunefarm_tuning.search.confirmation import confirm_best as confirm_best
    from tunefarm_tuning.search.result import TuneResult as TuneResult
    from tunefarm_tuning.search.round import PreparedRound as PreparedRound
    from tunefarm_tuning.search.round import prepare_round as prepare_round
    from tunefarm_tuning.search.round import run_round as run_round
    from tunefarm_tuning.search.scheduler import TaskScheduler as TaskScheduler
    from tunefarm_tuning.search.scheduler import TaskState as TaskState
    from tunefarm_tuning.search.trial_outcome import TrialOutcome as TrialOutcome
    from tunefarm_tuning.search.tune import tune as tune
    from tunefarm_tuning.space.config import Config as Config
    from tunefarm_tuning.space.config import KnobKind as KnobKind
    from tunefarm_tuning.space.config_space import ConfigSpace as ConfigSpace
    from tunefarm_tuning.space.config_space import Sketch as Sketch
    from tunefarm_tuning.space.knob import Knob as Knob
    from tunefarm_tuning.target.host import host_device_model as host_device_model
    from tunefarm_tuning.target.parse import detect_host_target as detect_host_target
    from tunefarm_tuning.target.parse import parse_target as parse_target
    from tunefarm_tuning.target.target import Target as Target
    from tunefarm_tuning.target.toolchain import toolchain_key as toolchain_key
    from tunefarm_tuning.target.toolchain import versions as versions
    from tunefarm_tuning.tuner import TUNERS as TUNERS
    from tunefarm_tuning.tuner.base import TrialResult as TrialResult
    from tunefarm_tuning.tuner.base import Tuner as Tuner
    from tunefarm_tuning.tuner.baselines import GridSearchTuner as GridSearchTuner
    from tunefarm_tuning.tuner.baselines import RandomTuner as RandomTuner
    from tunefarm_tuning.tuner.choice import make_tuner as make_tuner
    from tunefarm_tuning.tuner.evolutionary import EvolutionaryTuner as EvolutionaryTuner
    from tunefarm_tuning.tuner.ga import GATuner as GATuner
    from tunefarm_tuning.tuner.xgb import XGBTuner as XGBTuner
    from tunefarm_tuning.workload.model import Model as Model
    from tunefarm_tuning.workload.precision import Precision as Precision
    from tunefarm_tuning.workload.quantisation import OutputError as OutputError
    from tunefarm_tuning.workload.quantisation import Quantisation as Quantisation
    from tunefarm_tuning.workload.task import TensorSpec as TensorSpec
    from tunefarm_tuning.workload.task import TuningTask as TuningTask
    from tunefarm_tuning.workload.task import Workload as Workload

_MODULES: dict[str, tuple[str, ...]] = {
    "compiler.compile": ("Artifact", "compile"),
    "compiler.evaluate": ("Latency", "evaluate"),
    "compiler.kernel_source": ("KernelSource", "SourceText", "kernel_source"),
    "compiler.verify": ("VerifyReport", "verify"),
    "core.errors": ("TunefarmError",),
    "core.outcome": ("Outcome",),
    "frontend.extraction": ("extract_tasks",),
    "frontend.importing": ("import_model",),
    "frontend.conversion": ("import_stablehlo", "import_tflite"),
    "frontend.quantising": ("quantise_model",),
    "frontend.single_file": ("write_single_file",),
    "frontend.torch": ("import_torch",),
    "measure.builder.local": ("LocalBuilder",),
    "measure.builder.replay": ("ReplayBuilder",),
    "measure.device": ("RemoteDevice",),
    "measure.interfaces": ("Builder", "DeviceInfo", "MeasureOption", "Runner", "TimingOption"),
    "measure.peak": ("Peak", "measure_peak"),
    "measure.roofline": ("Roofline", "kernel_bytes", "roofline"),
    "measure.runner.local": ("LocalRunner",),
    "measure.runner.replay": ("ReplayRunner",),
    "measure.runner.rpc": ("RpcRunner",),
    "process.model_child": ("ImportLimits",),
    "records.coverage": ("Coverage", "CoveredTask", "MissedTask", "MissReason"),
    "records.history": ("History", "apply_history_best"),
    "records.metaschedule": (
        "ExportedDatabase",
        "ImportedDatabase",
        "export_metaschedule",
        "import_metaschedule",
    ),
    "records.record": ("TuningRecord", "load_records"),
    "records.selection": ("pick_best",),
    "records.transfer": ("TaskHistory",),
    "space.config": ("Config", "KnobKind"),
    "space.config_space": ("ConfigSpace", "Sketch"),
    "space.knob": ("Knob",),
    "target.host": ("host_device_model",),
    "target.parse": ("detect_host_target", "parse_target"),
    "target.target": ("Target",),
    "target.toolchain": ("toolchain_key", "versions"),
    "reference.samples": ("SampleSummary", "check_samples"),
    "search.budget": ("Budget",),
    "search.confirmation": ("confirm_best",),
    "search.result": ("TuneResult",),
    "search.round": ("PreparedRound", "prepare_round", "run_round"),
    "search.scheduler": ("TaskScheduler", "TaskState"),
    "search.trial_outcome": ("TrialOutcome",),
    "search.tune": ("tune",),
    "tuner.base": ("TrialResult", "Tuner"),
    "tuner": ("TUNERS",),
    "tuner.choice": ("make_tuner",),
    "tuner.evolutionary": ("EvolutionaryTuner",),
    "tuner.ga": ("GATuner",),
    "tuner.baselines": ("GridSearchTuner", "RandomTuner"),
    "tuner.xgb": ("XGBTuner",),
    "workload.model": ("Model",),
    "workload.precision": ("Precision",),
    "workload.quantisation": ("OutputError", "Quantisation"),
    "workload.task": ("TensorSpec", "TuningTask", "Workload"),
}
"""The public names of each module."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = tuple(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""The other runtimes that a network is timed beside, in one set of shapes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.measure.baselines.baseline import (
    Baseline,
    BaselineChild,
    BaselineFacts,
    BaselineNetwork,
    DeviceChild,
    LocalChild,
)
from tunefarm_tuning.measure.baselines.runtimes import KINDS, NOT_INSTALLED, installed_version, why_refused
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.workload.model import Model

_OF_GPU = "it is timed only on CPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The runtimes that were asked for.

    Attributes:
        names: All of them, in order.
        running: Those that may run the network.
        refused: Why the others cannot, by name.
        versions: Of those that run, as far as it is known before; None on another machine.
    """

    names: tuple[str, ...] = ()
    running: Mapping[str, Baseline] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] | None = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, BaselineFacts]:
        """What is known of each now, by name."""
        return {
            name: self.running[name].facts
            if name in self.running
            else BaselineFacts(missing=self.refused[name])
            for name in self.names
        }


@contextmanager
def open_baselines(
    names: Sequence[str],
    model: Model,
    input_set: InputSet,
    reference: Reference,
    *,
    threads: int,
    limits: CompileLimits,
    cancellation: Cancellation,
    on_gpu: bool = False,
    device: DeviceRun | None = None,
    folder: Path,
) -> Iterator[Baselines]:
    """Make baselines for the length of the block. None is started yet: `time_models` does that.

    Args:
        names: Of `measure.baselines.runtimes.KINDS`.
        model: In one set of shapes.
        input_set: What it is run on, and what should come out.
        reference: Writes the network for runtimes that read no TFLite.
        threads: The number of threads of each.
        limits: Of each child process, and of each call.
        cancellation: Ends them from another thread.
        on_gpu: Whether the network runs on a GPU, beside which none is timed.
        device: Reaches the device that runs them; None is this machine.
        folder: Where a TFLite file is put, and where `device` may read files.
    """
    refused: dict[str, str] = {}
    network: BaselineNetwork | None = None
    if on_gpu:
        refused = dict.fromkeys(names, _OF_GPU)
    elif names:
        try:
            written = reference.write_network()
        except InvalidModelError as error:
            refused = dict.fromkeys(names, f"the network cannot be written for it: {error.message}")
        else:
            refused = _refusals(names, is_tflite=written is None, is_here=device is None)
            network = _network(
                model,
                input_set,
                written or _as_tflite(model.path, folder),
                threads,
                is_tflite=written is None,
            )
    with ExitStack() as stack:
        running: dict[str, Baseline] = {}
        for name in names:
            if network is None or name in refused:
                continue
            child: BaselineChild = (
                LocalChild(network, ChildLimits(memory_bytes=limits.memory_bytes))
                if device is None
                else DeviceChild(KINDS[name], device)
            )
            baseline = Baseline(KINDS[name], network, child, timeout_sec=limits.model_sec)
            stack.enter_context(closing(baseline))
            stack.enter_context(cancellation.attach(baseline))
            running[name] = baseline
        versions = {name: installed_version(KINDS[name]) or "" for name in running}
        yield Baselines(
            names=tuple(names),
            running=running,
            refused=refused,
            versions=versions if device is None or not running else None,
        )


def _refusals(names: Sequence[str], *, is_tflite: bool, is_here: bool) -> dict[str, str]:
    """Return why runtimes cannot be started, as far as that is known before; on another machine, what is installed is not."""
    refusals = {}
    for name in names:
        why = why_refused(KINDS[name], is_tflite=is_tflite)
        if not why and is_here and installed_version(KINDS[name]) is None:
            why = NOT_INSTALLED
        if why:
            refusals[name] = why
    return refusals


def _as_tflite(path: Path, folder: Path) -> Path:
    """Return a copy of a TFLite file under a name that ends so, which OpenVINO knows the format by; a store's files have no endings.

    No link: children may write into the folder.
    """
    named = folder / "network.tflite"
    shutil.copyfile(path, named)
    return named


def _network(
    model: Model, input_set: InputSet, path: Path, threads: int, *, is_tflite: bool
) -> BaselineNetwork:
    return BaselineNetwork(
        path=path,
        names=tuple(spec.name for spec in model.inputs),
        outputs=tuple(spec.name for spec in model.outputs),
        constants=model.binding.to_json()["values"] if is_tflite else {},
        input_set=input_set,
        threads=threads,
    )

"""Profile a compiled network: each call of its virtual machine, and each kernel by itself.

Imports TVM, whose threads have to be set before (``TVM_NUM_THREADS``).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

_ALONE_SEC = 0.02
_ALONE_SAMPLES = 5
_MOST_COLD_SAMPLES = 15
_COLD_BUDGET_SEC = 0.5
_FLUSH = "cache_flush_cpu_non_first_arg"  # of TVM: what a kernel finds cold within a network are its weights
_BUILT_IN = "vm."


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an inference, in order. `network_sec` is the median over the inferences."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    network_sec: float


@dataclass(slots=True, kw_only=True)
class Kernel:
    """A kernel and its calls.

    Attributes:
        network_sec: One call within the network, the mean over its calls of an inference.
        alone_sec: One call by itself, many in a row on the same arguments: all that fits is in the caches. None where it was not
            timed.
        cold_sec: The same, with all arguments but the first flushed from the caches before each call.
    """

    name: str
    calls: int
    shapes: tuple[tuple[int, ...], ...]
    network_sec: float
    alone_sec: float | None = None
    cold_sec: float | None = None

    @property
    def total_sec(self) -> float:
        return self.calls * self.network_sec


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProfile:
    """A profiled network.

    Attributes:
        latency_sec: One inference without anybody watching, median.
        watched_sec: One inference while each call was timed, median.
        calls: Every kernel's, in order.
        kernels: By time within the network, the largest first.
        built_in_sec: Of the machine's own functions (allocation, reshapes), per inference, by name.
    """

    latency_sec: float
    watched_sec: float
    calls: tuple[Call, ...]
    kernels: tuple[Kernel, ...]
    built_in_sec: Mapping[str, float]


@dataclass(slots=True)
class _Watch:
    """Called by the virtual machine before and after each call."""

    names: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    arguments: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    shapes: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    keeping: bool = True
    began: float = 0.0

    def see(self, func: Any, name: str, before: bool, result: Any, *args: Any) -> int:  # noqa: ARG002
        if before:
            if self.keeping:
                tensors = tuple(arg for arg in args if isinstance(arg, tvm.runtime.Tensor))
                self.shapes.append(tuple(tuple(map(int, tensor.shape)) for tensor in tensors))
                if not name.startswith(_BUILT_IN):
                    self.arguments.setdefault(name, args)
            self.names.append(name)
            self.began = time.perf_counter()
        else:
            self.seconds.append(time.perf_counter() - self.began)
        return 0


def profile_library(
    library: Path, inputs: Sequence[NDArray[Any]], *, inferences: int = 20, alone: bool = True
) -> NetworkProfile:
    """Run a compiled network and time its calls.

    Args:
        library: A shared library of Relax's virtual machine, at a path that was not loaded before.
        inputs: In order.
        inferences: How many are watched, and how many are not, in turn.
        alone: Whether to time each kernel by itself too.
    """
    device = tvm.cpu()
    loaded = tvm.runtime.load_module(str(library))
    machine = relax.VirtualMachine(loaded, device)
    # A machine that is watched stays so: two of one library, which share its code and its weights.
    watched = relax.VirtualMachine(loaded, device)
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]
    for vm in (machine, watched):
        vm.set_input("main", *tensors)
        vm.invoke_stateful("main")
    watch = _Watch()
    watched.set_instrument(watch.see)
    watched.invoke_stateful("main")
    watch.keeping = False
    names, shapes = list(watch.names), list(watch.shapes)
    plain_sec, watched_sec, by_call = [], [], []
    for _ in range(inferences):
        plain_sec.append(_seconds(lambda: machine.invoke_stateful("main")))
        watch.names.clear()
        watch.seconds.clear()
        watched_sec.append(_seconds(lambda: watched.invoke_stateful("main")))
        if watch.names == names:
            by_call.append(list(watch.seconds))
    medians = [float(sec) for sec in np.median(np.array(by_call), axis=0)]
    kernels = _kernels(names, shapes, medians)
    if alone:
        _time_alone(loaded, kernels, watch.arguments)
    built_in: dict[str, float] = defaultdict(float)
    for name, sec in zip(names, medians, strict=True):
        if name.startswith(_BUILT_IN):
            built_in[name] += sec
    return NetworkProfile(
        latency_sec=median(plain_sec),
        watched_sec=median(watched_sec),
        calls=tuple(
            Call(name=name, shapes=shape, network_sec=sec)
            for name, shape, sec in zip(names, shapes, medians, strict=True)
            if not name.startswith(_BUILT_IN)
        ),
        kernels=tuple(sorted(kernels, key=lambda kernel: -kernel.total_sec)),
        built_in_sec=dict(built_in),
    )


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _kernels(
    names: Sequence[str], shapes: Sequence[tuple[tuple[int, ...], ...]], medians: Sequence[float]
) -> list[Kernel]:
    calls: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if not name.startswith(_BUILT_IN):
            calls.setdefault(name, []).append(at)
    return [
        Kernel(
            name=name,
            calls=len(places),
            shapes=shapes[places[0]],
            network_sec=sum(medians[at] for at in places) / len(places),
        )
        for name, places in calls.items()
    ]


def _time_alone(loaded: Any, kernels: Sequence[Kernel], arguments: Mapping[str, tuple[Any, ...]]) -> None:
    device = tvm.cpu()
    for kernel in kernels:
        home = next((module for module in loaded.imports if module.implements_function(kernel.name)), None)
        if home is None:  # a function that the library does not hold itself
            continue
        args = arguments[kernel.name]

        def timed(
            number: int, repeat: int, flush: str = "", home: Any = home, kernel: Kernel = kernel
        ) -> Any:
            return home.time_evaluator(kernel.name, device, number=number, repeat=repeat, f_preproc=flush)

        number = max(1, int(_ALONE_SEC / max(kernel.network_sec, 1e-7)))
        kernel.alone_sec = float(median(timed(number, _ALONE_SAMPLES)(*args).results))
        samples = max(3, min(_MOST_COLD_SAMPLES, int(_COLD_BUDGET_SEC / max(kernel.network_sec, 1e-7))))
        kernel.cold_sec = float(median(timed(1, samples, _FLUSH)(*args).results))

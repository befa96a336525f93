"""Child process that runs a network with one runtime, times it and returns its outputs.

Handlers: `open` first; `sample` returns seconds per inference with inputs and outputs where the runtime wants them,
`call_sample` of a call as a user writes it, numpy arrays in and out; `outputs` writes what comes out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.latency import wait_until_idle
from tunefarm_tuning.measure.baselines.runtime import NetworkFile, Runtime
from tunefarm_tuning.measure.baselines.runtimes import KINDS as KINDS_OF_JOBS

Arrays = dict[str, NDArray[Any]]


class Contender(Protocol):
    """One way to run a network."""

    def sample(self, number: int, *, warm: bool) -> float:
        """Return seconds per inference of a number of inferences in a row; `warm` runs one before that does not count."""

    def call(self) -> list[NDArray[Any]]:
        """Run it as a user would."""


class ArtifactContender:
    """An artifact through its own loader."""

    def __init__(self, path: Path, inputs: Arrays, threads: int) -> None:
        from tunefarm_tuning.artifact.loader import load

        self._model = load(path, threads=threads)
        self._inputs = inputs

    def sample(self, number: int, *, warm: bool) -> float:  # noqa: ARG002  (its loader warms up by itself)
        return self._model.time(repeat=1, number=number, inputs=self._inputs)[0]

    def call(self) -> list[NDArray[Any]]:
        return list(self._model.run(self._inputs).values())


class LibraryContender:
    """A compiled library of Relax's virtual machine; ``TVM_NUM_THREADS`` says how many threads it has."""

    def __init__(self, path: Path, inputs: Arrays, threads: int) -> None:
        import tvm
        import tvm_ffi
        from tvm import relax

        tvm_ffi.get_global_func("runtime.config_threadpool")(0, threads)
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
        self._machine.set_input("main", *[tvm.runtime.tensor(array) for array in inputs.values()])

    def sample(self, number: int, *, warm: bool) -> float:
        return timed(lambda: self._machine.invoke_stateful("main"), number, warm=warm)

    def call(self) -> list[NDArray[Any]]:
        raise NotImplementedError("only timed")


class OnnxRuntimeContender:
    """ONNX Runtime at its best settings; or without graph optimisations, as the reference for outputs."""

    def __init__(
        self, path: Path, inputs: Arrays, threads: int, *, spinning: bool = True, optimised: bool = True
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = inputs
        self._binding = self._session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        for output, array in zip(self._session.get_outputs(), self.call(), strict=True):
            output_value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(array))
            self._binding.bind_ortvalue_output(output.name, output_value)
        try:
            self._session.run_with_iobinding(self._binding)
            self._is_bound = True
        except RuntimeError:  # outputs of another rank than the file declares can be returned, not bound
            self._is_bound = False

    def sample(self, number: int, *, warm: bool) -> float:
        if not self._is_bound:
            return timed(lambda: self._session.run(None, self._inputs), number, warm=warm)
        return timed(lambda: self._session.run_with_iobinding(self._binding), number, warm=warm)

    def call(self) -> list[NDArray[Any]]:
        return [np.asarray(array) for array in self._session.run(None, self._inputs)]


class RuntimeContender:
    """Another runtime, as jobs time artifacts beside it."""

    def __init__(self, path: Path, inputs: Arrays, threads: int, *, kind: str) -> None:
        module, function = KINDS_OF_JOBS[kind].opener
        opener = getattr(import_module(module), function)
        self._runtime: Runtime = opener(NetworkFile(path=path, inputs=inputs, threads=threads))
        self._runtime.run()

    def sample(self, number: int, *, warm: bool) -> float:
        return timed(self._runtime.run, number, warm=warm)

    def call(self) -> list[NDArray[Any]]:
        return self._runtime.outputs()


class TorchContender:
    """PyTorch with the module that `onnx2torch` makes of the file, eager or through `torch.compile`."""

    def __init__(self, path: Path, inputs: Arrays, threads: int, *, compiled: bool) -> None:
        import onnx2torch
        import torch
        from benchmarks.models.torch_shapes import with_known_shapes

        torch.set_num_threads(threads)
        if compiled:
            import torch._inductor.config as inductor

            inductor.freezing = (
                True  # weights packed once, as the others do: 1.5 times as fast on a ResNet-18
            )
        module = with_known_shapes(onnx2torch.convert(str(path)).eval())
        self._run = torch.compile(module) if compiled else module
        self._inputs = [torch.from_numpy(array) for array in inputs.values()]
        self._torch = torch

    def sample(self, number: int, *, warm: bool) -> float:
        with self._torch.inference_mode():
            return timed(lambda: self._run(*self._inputs), number, warm=warm)

    def call(self) -> list[NDArray[Any]]:
        with self._torch.inference_mode():
            outputs = self._run(*self._inputs)
        return [tensor.numpy() for tensor in (outputs if isinstance(outputs, tuple | list) else [outputs])]


def timed(run: Callable[[], object], number: int, *, warm: bool) -> float:
    """Return the mean seconds of a number of calls."""
    if warm:
        run()
    began = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - began) / number


KINDS: dict[str, Callable[[Path, Arrays, int], Contender]] = {
    "artifact": ArtifactContender,
    "artifact_bfloat16": ArtifactContender,
    "untuned": LibraryContender,
    "plain": LibraryContender,
    "onnxruntime": OnnxRuntimeContender,
    "onnxruntime_still": lambda *known: OnnxRuntimeContender(*known, spinning=False),
    **{kind: partial(RuntimeContender, kind=kind) for kind in KINDS_OF_JOBS},
    "reference": lambda *known: OnnxRuntimeContender(*known, optimised=False),
    "torch": lambda *known: TorchContender(*known, compiled=False),
    "torch_compile": lambda *known: TorchContender(*known, compiled=True),
}
_open: Contender | None = None


def open_(params: dict[str, Any]) -> dict[str, float]:
    """Open one: ``{"kind", "path", "names", "inputs" (a file), "threads"}``.

    Returns:
        ``open_sec``.
    """
    global _open
    began = time.perf_counter()
    inputs = dict(zip(params["names"], load_arrays(params["inputs"]), strict=True))
    _open = KINDS[params["kind"]](Path(params["path"]), inputs, params["threads"])
    return {"open_sec": time.perf_counter() - began}


def sample(params: dict[str, Any]) -> float:
    """Return seconds per inference: ``{"number", "warm"}``."""
    return _when_idle(_get().sample(params["number"], warm=params["warm"]))


def call_sample(params: dict[str, Any]) -> float:
    """Return seconds per call of a user: ``{"number", "warm"}``."""
    return _when_idle(timed(_get().call, params["number"], warm=params["warm"]))


def outputs(params: dict[str, Any]) -> None:
    """Run it and write its outputs: ``{"path"}``."""
    save_arrays(Path(params["path"]), _get().call())


def _when_idle(seconds: float) -> float:
    """Return the argument as soon as our threads are idle, so that the next contender is undisturbed."""
    wait_until_idle()
    return seconds


def _get() -> Contender:
    if _open is None:
        raise RuntimeError("nothing is open")
    return _open


HANDLERS = {"open": open_, "sample": sample, "call_sample": call_sample, "outputs": outputs}

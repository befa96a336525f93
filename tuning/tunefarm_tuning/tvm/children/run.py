"""Child process of `measure.device_run`: runs kernels and whole models, here or over RPC, compares their results, and times them.

Libraries are kept by path, so any call can be the first of a fresh child, except `compare_kernel`: it needs `run_untuned`
before it. These are two calls, so that a crash can be told to be the one's or the other's.

Handlers:

- `connect`: ``address`` (null for this process), ``kind``, ``threads``, ``timeout_sec`` -> ``threads`` that kernels run on;
  ``device_exists``; ``why`` not, else empty; ``libraries`` that kernels may call: versions by name.
- `hang_up`: {} -> null.
- `run_untuned`: ``path``, ``args`` (specs), ``seed``, ``kind`` (of inputs), ``calls`` -> ``call_sec``, ``calls_sec``.
- `compare_kernel`: ``path``, ``untuned`` (path of `run_untuned`), ``time`` (bool), ``rounding`` -> ``comparisons`` of all arguments;
  ``tuned_sec``, ``untuned_sec``: samples, empty where not timed.
- `load_model`: ``path`` -> {}. Later calls load it as well; it only takes time.
- `check_model`: ``path``, ``entry`` (the library's function), ``inputs``, ``expected``, ``widths`` (files; the last may be null),
  ``names``, ``rounding``, ``recorded`` (`InputSet.parts`) -> ``comparisons`` of the outputs, and of what goes into and comes out of
  parts; ``unforced``: how the outputs differ if each part runs on what the compiled network gives it, empty if they do not;
  ``random_parts``: numbers of the parts whose results are random. The last two only if there are parts.
- `run_model`: ``path``, ``entry``, ``inputs``, ``outputs`` (files on this machine; the second is written) -> {}.
- `time_model`: ``path``, ``entry``, ``inputs`` (file), ``number``, ``repeat`` -> ``samples_sec``, one a repeat; ``watched`` (`Watched`).
  With ``in_groups``, on a CPU, ``groups_sec``: `time_groups` of ``number`` inferences, whose mean is the only sample.
- `yardstick_loop`: {} -> ``loop_sec``: of the device's yardstick loop, null if it has none.
- `time_parts`: the same -> ``samples_sec``; ``parts_sec``: of each part, a sample a repeat; ``missing``: why parts were not run, else empty.
- `baseline`, `time_other`, `check_artifact`: the device's own functions (`measure.device_functions`), with their parameters and answers, but files
  are uploaded first; ``missing`` or ``not_offered`` where the device does not have them.

Each takes ``parts`` if ONNX Runtime runs parts of the network: ``models`` (files), and ``recorded``, to be replayed where it is missing.

Where TVM fails, the answer is ``failure`` (a text), ``session_lost``, ``poisoned`` (nothing more can run in this session, or in
this process if it is the device), ``devices_fault``. Unless the failure itself blames the device, the parent finds out whether it
is to blame. A machine that is not set up is an `InvalidInputError`, ``gpu-set-up``.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import mean
from typing import Any

from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.artifact.cuda_runtime import why_no_gpu
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidInputError, InvariantError, TunefarmError
from tunefarm_tuning.core.latency import wait_until_idle
from tunefarm_tuning.core.spans import SpanKind, span
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure import device_functions
from tunefarm_tuning.measure.baselines.session import FILES as BASELINE_FILES
from tunefarm_tuning.measure.device_functions import ARRAY_FILES
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import group_size
from tunefarm_tuning.process import Handler, Handlers
from tunefarm_tuning.reference.comparison import Comparison, compare_outputs
from tunefarm_tuning.reference.widths import load_widths
from tunefarm_tuning.tvm.device.kernel_check import COMPARE_KERNEL, RUN_UNTUNED, KernelCheck
from tunefarm_tuning.tvm.device.parts import DeviceParts
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.tvm.device.watching import libraries_of, loop_of_machine, state_of_machine

_session: DeviceSession | None = None
_kind = "cpu"
_threads = 1
_parts: DeviceParts | None = None
_models: dict[str, Any] = {}
_given: dict[str, tuple[str, str, int]] = {}
"""The function of each model that has inputs on the device, and their file: its path and time of writing."""
_kernel_check: KernelCheck | None = None
_uploaded: dict[tuple[str, int], str] = {}
"""The names on the device of the kernel that `run_untuned` ran last, and of those compared with it, by path and time of writing."""


def connect(params: dict[str, Any]) -> dict[str, Any]:
    """Open the session and set the threads of its kernels.

    Raises:
        DeviceLostError: If the device cannot be reached, or does not do what every device does; ``device-broke-protocol``.
    """
    global _session, _kind, _threads
    hang_up({})
    kind, address = params["kind"], params["address"]
    session = local_session() if address is None else open_session(address, timeout_sec=params["timeout_sec"])
    with session.setting_up():
        session.function("runtime.config_threadpool")(0, params["threads"])
        threads, exists = int(session.function("runtime.NumThreads")()), bool(session.device(kind).exist)
    _session, _kind, _threads = session, kind, threads
    libraries = libraries_of(session)
    why = why_no_gpu() if not exists and address is None and _kind == "cuda" else ""
    return {"threads": threads, "device_exists": exists, "why": why, "libraries": libraries}


def hang_up(_params: dict[str, Any]) -> None:
    """Release all objects of the session, and close it."""
    global _session, _kernel_check, _parts
    _models.clear()
    _given.clear()
    _uploaded.clear()
    _kernel_check = _parts = None
    gc.collect()
    if _session is not None:
        _session.close()
        _session = None


def run_untuned(params: dict[str, Any]) -> dict[str, Any]:
    """Run the kernel that `compare_kernel` compares another one with, on the device."""
    return _check_kernel(RUN_UNTUNED, params)


def compare_kernel(params: dict[str, Any]) -> dict[str, Any]:
    """Compare a kernel with the one that was just run, on the device."""
    return _check_kernel(COMPARE_KERNEL, params)


def _check_kernel(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Have the device do it; do it from here if it is this process, or its agent is older."""
    global _kernel_check
    session = _get()
    run = None if session.is_local else session.offered(name)
    if run is None:
        _kernel_check = _kernel_check or KernelCheck(session, _kind)
        return (_kernel_check.run_untuned if name == RUN_UNTUNED else _kernel_check.compare_kernel)(params)
    if name == RUN_UNTUNED and _version(params["path"]) not in _uploaded:
        _uploaded.clear()
    files = {file: _upload_once(params[file]) for file in ("path", "untuned") if file in params}
    reply: dict[str, Any] = json.loads(str(run(json.dumps({**params, **files, "device": _kind}))))
    return reply


def _upload_once(path: str) -> str:
    version = _version(path)
    if version not in _uploaded:
        _uploaded[version] = _get().upload(path)
    return _uploaded[version]


def _version(path: str) -> tuple[str, int]:
    return path, Path(path).stat().st_mtime_ns


def load_model(params: dict[str, Any]) -> dict[str, Any]:
    """Load a model on the device."""
    _model(params["path"])
    return {}


def check_model(params: dict[str, Any]) -> dict[str, Any]:
    """Run a model and compare its outputs."""
    parts = _open_parts(params)  # first: a network that calls parts cannot be loaded without
    expected = load_arrays(params["expected"])

    def compare() -> list[Comparison]:
        return compare_outputs(
            params["names"],
            _outputs(params),
            expected,
            rounding=params["rounding"],
            widths=load_widths(params.get("widths")),
        )

    if parts is None:
        return {"comparisons": [comparison.to_json() for comparison in compare()]}
    # Each half by itself: the compiled one between results of the reference, each part on inputs of the reference.
    recorded, rounding = params["recorded"], params["rounding"]
    parts.replay(recorded, rounding)
    with parts.running():
        comparisons = compare()
    comparisons += parts.comparisons()
    comparisons += parts.compare_parts(recorded, rounding)
    parts.replay([], None)
    unforced = ""
    if not parts.missing and not parts.random:
        with parts.running():
            unforced = next((f"{c.name!r}: {c.message}" for c in compare() if not c.ok), "")
    return {
        "comparisons": [comparison.to_json() for comparison in comparisons],
        "unforced": clean(unforced, 300),
        "random_parts": sorted(parts.random),
    }


def run_model(params: dict[str, Any]) -> dict[str, Any]:
    """Run a model and write its outputs."""
    save_arrays(Path(params["outputs"]), _outputs(params))
    return {}


@span("run the network", SpanKind.RUN)
def _outputs(params: dict[str, Any]) -> list[NDArray[Any]]:
    machine, entry = _with_inputs(params), params["entry"]
    machine.invoke_stateful(entry)
    return [tensor.numpy() for tensor in _flatten(machine.get_outputs(entry))]


def time_model(params: dict[str, Any]) -> dict[str, Any]:
    """Time a model, and watch the device meanwhile; return when the threads of this machine are idle again."""
    groups_sec = None
    if params.get("in_groups") and _kind == "cpu":
        size = group_size(params["number"])
        grouped = {**params, "number": size, "repeat": params["number"] // size}
        groups_sec, watched = _time_model(grouped)
        samples = [mean(groups_sec)]
    else:
        samples, watched = _time_model(params)
    return {
        "samples_sec": samples,
        "groups_sec": groups_sec,
        "watched": None if watched is None else watched.to_json(),
    }


def yardstick_loop(_params: dict[str, Any]) -> dict[str, Any]:
    """Run the device's yardstick loop."""
    return {"loop_sec": loop_of_machine(_get())}


def time_parts(params: dict[str, Any]) -> dict[str, Any]:
    """Time a model, and the parts of it that ONNX Runtime runs."""
    parts = _open_parts(params)
    samples: list[float] = []
    by_sample: list[list[float]] = []
    for _ in range(params["repeat"]):
        samples += _time_model({**params, "repeat": 1})[0]
        by_sample.append(parts.taken_sec() if parts is not None else [])
    return {
        "samples_sec": samples,
        "parts_sec": [list(part) for part in zip(*by_sample, strict=True)],
        "missing": parts.missing if parts is not None else "",
    }


@span("time the network", SpanKind.TIMING)
def _time_model(params: dict[str, Any]) -> tuple[list[float], Watched | None]:
    parts = _open_parts(params)
    machine, entry = _with_inputs(params), params["entry"]
    timer = machine.time_evaluator(
        "invoke_stateful", _get().device(_kind), number=params["number"], repeat=params["repeat"]
    )
    if parts is not None:
        recorded = params["parts"]["recorded"]
        if parts.missing and not recorded:
            raise InvalidInputError(parts.missing, code="no-onnxruntime")
        parts.replay(recorded if parts.missing else [], None)
    with parts.running() if parts is not None else nullcontext():
        before = state_of_machine(_get())
        samples = list(map(float, timer(entry).results))
        watched = Watched.between(before, state_of_machine(_get()))
    wait_until_idle()
    return samples, watched


def _open_parts(params: dict[str, Any]) -> DeviceParts | None:
    """Return the parts of the network that ONNX Runtime runs, loaded once a session."""
    global _parts
    if "parts" not in params:
        return None
    models = tuple(params["parts"]["models"])
    if _parts is None or _parts.models != models:
        _parts = DeviceParts(_get(), models, _threads)
    return _parts


def time_other(params: dict[str, Any]) -> dict[str, Any]:
    """Have the device time another runtime with a network."""
    why_not = _get().offered(device_functions.NOT_INSTALLED)
    run = _get().offered(device_functions.TIME_OTHER)
    if why_not is None or run is None:
        return {
            "missing": "the device's agent is older than this farm, or not a GPU's: it does not time other networks"
        }
    if missing := str(why_not(params["kind"])):
        return {"missing": f"{missing} where the device's agent runs"}
    uploaded = {name: _get().upload(params[name]) for name in ("model", "inputs")}
    reply: dict[str, Any] = json.loads(str(run(json.dumps({**params, **uploaded}))))
    return reply


def baseline(params: dict[str, Any]) -> dict[str, Any]:
    """Call a handler of another runtime's child on the device (`measure.baselines.session`)."""
    run = _get().offered(device_functions.BASELINE)
    if run is None:
        return {"failed": "the device's agent is older than this farm, and times no other runtime: update it"}
    files = {
        name: _get().upload(params["params"][name]) for name in BASELINE_FILES if params["params"].get(name)
    }
    request = {**params, "params": {**params["params"], **files}}
    reply: dict[str, Any] = json.loads(str(run(json.dumps(request))))
    return reply


def check_artifact(params: dict[str, Any]) -> dict[str, Any]:
    """Have the device run an artifact by its own loader."""
    run = _get().offered(device_functions.CHECK_ARTIFACT)
    if run is None:
        return {"not_offered": True}
    sets = [
        {
            **arrays,
            **{name: _get().upload(arrays[name]) for name in ARRAY_FILES if arrays.get(name)},
            "recorded": [
                {end: _get().upload(file) for end, file in files.items()} for files in arrays["recorded"]
            ],
        }
        for arrays in params["sets"]
    ]
    reply: dict[str, Any] = json.loads(
        str(run(json.dumps({**params, "path": _get().upload(params["path"]), "sets": sets})))
    )
    return reply


def _model(path: str) -> Any:
    if path not in _models:
        _models[path] = relax.VirtualMachine(_get().load_network(path, _threads), _get().device(_kind))
    return _models[path]


def _with_inputs(params: dict[str, Any]) -> Any:
    """Return a model with its inputs set. A sample of its time follows many others on the same inputs, which are sent once."""
    path, entry = params["path"], params["entry"]
    machine, given = _model(path), (entry, *_version(params["inputs"]))
    if _given.get(path) != given:
        _given.pop(path, None)
        machine.set_input(entry, *_get().to_device(load_arrays(params["inputs"]), _kind))
        _given[path] = given
    return machine


def _flatten(value: Any) -> list[Any]:
    """Return the tensors of an output, which can be a nested tuple."""
    if isinstance(value, Sequence):
        return [tensor for part in value for tensor in _flatten(part)]
    return [value]


def _get() -> DeviceSession:
    if _session is None:
        raise InvariantError("no session is open")
    return _session


def _failure_as_value(handler: Handler) -> Handler:
    """Return a handler that answers with a description of TVM's errors."""

    def call(params: dict[str, Any]) -> Any:
        try:
            return handler(params)
        except (MemoryError, TunefarmError):
            raise
        except Exception as error:  # noqa: BLE001  (TVM has many error types; a kernel that does not run is data)
            message = " ".join(str(error).split())
            text = f"{type(error).__name__}: {clean(message, 500)}"
        # Outside of the block: inside, the traceback keeps objects of the session alive.
        devices_fault = is_devices_fault(message)
        poisoned = devices_fault or poisons(message)
        lost = not poisoned and not _get().is_alive()
        if lost or poisoned:
            hang_up({})
        if (reason := setups_fault(message)) is not None:
            raise InvalidInputError(f"{reason} ({text})", code="gpu-set-up")
        return {"failure": text, "session_lost": lost, "poisoned": poisoned, "devices_fault": devices_fault}

    return call


HANDLERS: Handlers = {
    "connect": connect,
    "hang_up": hang_up,
    "baseline": _failure_as_value(baseline),
    "time_other": _failure_as_value(time_other),
    "check_artifact": _failure_as_value(check_artifact),
    "run_untuned": _failure_as_value(run_untuned),
    "compare_kernel": _failure_as_value(compare_kernel),
    "load_model": _failure_as_value(load_model),
    "check_model": _failure_as_value(check_model),
    "run_model": _failure_as_value(run_model),
    "time_model": _failure_as_value(time_model),
    "yardstick_loop": _failure_as_value(yardstick_loop),
    "time_parts": _failure_as_value(time_parts),
}

"""Child process: runs kernels and whole models, here or over RPC, compares what they return, and times them.

What is loaded is kept by path, so that every call can be the first one of a fresh child, but for
`compare_kernel`, which needs `run_untuned` before it: two calls, so that a crash is of the one or of the other.
What fails inside of TVM is a value, ``{"failure", "session_lost", "poisoned", "devices_fault"}``: whether the device is to blame
is asked of it afterwards, by its parent, unless the failure says so itself. After one that is poisoned nothing can run any more in
its session, or in this process where that was the device. Where the machine's set-up is to blame it is an error.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.artifact.cuda_runtime import why_no_gpu
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvalidInputError, InvariantError, TunefarmError
from tunefarm_tuning.core.latency import wait_until_idle
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure import device_functions as device_offers
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.kernel_timing import time_both
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.tvm.device.session import DeviceSession, local_session, open_session
from tunefarm_tuning.workload.task import TensorSpec

_session: DeviceSession | None = None
_kind = "cpu"
_models: dict[str, Any] = {}
# Of the last `run_untuned`: path, library, the arguments before and after, seconds of a call.
_untuned: tuple[str, Any, list[NDArray[Any]], list[NDArray[Any]], list[NDArray[Any]], float] | None = None


def connect(params: dict[str, Any]) -> dict[str, Any]:
    """Open the session: ``{"address", "kind", "threads", "timeout_sec"}``; with no address it is this process.

    Returns:
        ``threads``: on how many kernels run; ``device_exists``, and ``why`` not.
    """
    global _session, _kind
    hang_up({})
    address = params["address"]
    session = local_session() if address is None else open_session(address, timeout_sec=params["timeout_sec"])
    session.function("runtime.config_threadpool")(0, params["threads"])
    threads = int(session.function("runtime.NumThreads")())
    _session, _kind = session, params["kind"]
    exists = bool(session.device(_kind).exist)
    why = why_no_gpu() if not exists and address is None and _kind == "cuda" else ""
    return {"threads": threads, "device_exists": exists, "why": why}


def hang_up(params: dict[str, Any]) -> None:  # noqa: ARG001  (a handler's signature)
    """Let go of everything that came from the session, and close it."""
    global _session, _untuned
    _models.clear()
    _untuned = None
    gc.collect()
    if _session is not None:
        _session.close()
        _session = None


def run_untuned(params: dict[str, Any]) -> dict[str, Any]:
    """Run the kernel that another will be compared with: ``{"path", "args", "seed", "kind"}``."""
    global _untuned
    _untuned = None
    specs = [TensorSpec.from_json(spec) for spec in params["args"]]
    before = random_inputs(specs, seed=params["seed"], kind=InputKind(params["kind"]))
    library = _get().load(params["path"])
    packed = _pack(library, before)
    after, call_sec = _run_kernel(library, packed)
    expected = [got if is_ is was else was for is_, was, got in zip(packed, before, after, strict=True)]
    _untuned = (params["path"], library, before, packed, expected, call_sec)
    return {"call_sec": call_sec}


def compare_kernel(params: dict[str, Any]) -> dict[str, Any]:
    """Compare a kernel with the one that was just run: ``{"path", "untuned", "time", "rounding"}``.

    Every argument is compared, inputs too: a kernel that writes where it should not is a wrong one.

    Returns:
        ``comparisons`` of the arguments; ``tuned_sec`` and ``untuned_sec``, samples, empty where not ``time``.
    """
    if _untuned is None or _untuned[0] != params["untuned"]:
        raise InvariantError("the untuned kernel has not been run")
    _, untuned, before, untuned_args, expected, untuned_sec = _untuned
    tuned = _get().load(params["path"])
    packed = _pack(tuned, before)
    after, tuned_sec = _run_kernel(tuned, packed)
    # What it takes in an order of its own has to be as it was.
    expected = [
        is_ if is_ is not was else wanted for is_, was, wanted in zip(packed, before, expected, strict=True)
    ]
    names = [f"arg{i}" for i in range(len(after))]
    comparisons = compare_outputs(names, after, expected, rounding=params["rounding"])
    tuned_samples: list[float] = []
    untuned_samples: list[float] = []
    if params["time"] and all(one.ok for one in comparisons):
        args, packed_args = _to_device(untuned_args), _to_device(packed)
        tuned_samples, untuned_samples = time_both(
            lambda number: _time_kernel(tuned, packed_args, number), tuned_sec,
            lambda number: _time_kernel(untuned, args, number), untuned_sec,
        )  # fmt: skip
    return {
        "comparisons": [one.to_json() for one in comparisons],
        "tuned_sec": tuned_samples,
        "untuned_sec": untuned_samples,
    }


def check_model(params: dict[str, Any]) -> dict[str, Any]:
    """Run a model and compare its outputs: ``{"path", "inputs", "expected", "names", "rounding"}``."""
    machine = _model(params["path"])
    machine.set_input("main", *_to_device(load_arrays(params["inputs"])))
    machine.invoke_stateful("main")
    outputs = [tensor.numpy() for tensor in _flatten(machine.get_outputs("main"))]
    expected = load_arrays(params["expected"])
    comparisons = compare_outputs(params["names"], outputs, expected, rounding=params["rounding"])
    return {"comparisons": [one.to_json() for one in comparisons]}


def time_model(params: dict[str, Any]) -> dict[str, Any]:
    """Time a model: ``{"path", "inputs", "number", "repeat"}``; each repeat is a sample, after one warm-up.

    It returns once the threads rest; those of another machine are not waited for.
    """
    machine = _model(params["path"])
    machine.set_input("main", *_to_device(load_arrays(params["inputs"])))
    timer = machine.time_evaluator(
        "invoke_stateful", _get().device(_kind), number=params["number"], repeat=params["repeat"]
    )
    samples = [float(one) for one in timer("main").results]
    wait_until_idle()
    return {"samples_sec": samples}


def time_other(params: dict[str, Any]) -> dict[str, Any]:
    """Have the device time another runtime with a network: parameters and answer as those of `device_offers.time_other`."""
    why_not = _offered(device_offers.NOT_INSTALLED)
    run = _offered(device_offers.TIME_OTHER)
    if why_not is None or run is None:
        return {"missing": "the device's agent is older than this farm, or not a GPU's: it times nobody else"}
    if missing := str(why_not(params["kind"])):
        return {"missing": f"{missing} where the device's agent runs"}
    uploaded = {name: _get().upload(params[name]) for name in ("model", "inputs")}
    reply: dict[str, Any] = json.loads(str(run(json.dumps({**params, **uploaded}))))
    return reply


def check_artifact(params: dict[str, Any]) -> dict[str, Any]:
    """Have the device run an artifact by its own loader: parameters and answer as those of `device_offers.check_artifact`.

    Returns:
        ``{"not_offered": true}`` where the device does not do that.
    """
    run = _offered(device_offers.CHECK_ARTIFACT)
    if run is None:
        return {"not_offered": True}
    sets = [
        {**one, **{name: _get().upload(one[name]) for name in ("inputs", "expected")}}
        for one in params["sets"]
    ]
    reply: dict[str, Any] = json.loads(
        str(run(json.dumps({**params, "path": _get().upload(params["path"]), "sets": sets})))
    )
    return reply


def _offered(name: str) -> Any | None:
    """Return a function of the device's; None where it has none of that name."""
    try:
        return _get().function(name)
    except AttributeError:
        return None


def _model(path: str) -> Any:
    if path not in _models:
        _models[path] = relax.VirtualMachine(_get().load(path), _get().device(_kind))
    return _models[path]


def _pack(library: Any, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the arguments as a kernel takes them: its library has a function for each that it wants in another order."""
    packed = list(arrays)
    for number, array in enumerate(arrays):
        try:
            # A library on another machine cannot be asked what it has.
            packs = library[f"pack_{number}"]
        except AttributeError:
            continue
        given, made = _to_device([array, array])
        packs(given, made)
        packed[number] = made.numpy()
    return packed


def _run_kernel(library: Any, arrays: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], float]:
    """Return the arguments after two calls, and the seconds of the second."""
    args = _to_device(arrays)
    seconds = _time_kernel(library, args, 1)
    return [tensor.numpy() for tensor in args], seconds


def _time_kernel(library: Any, args: Sequence[Any], number: int) -> float:
    timer = library.time_evaluator("main", _get().device(_kind), number=number, repeat=1)
    return float(timer(*args).results[0])


def _to_device(arrays: Sequence[NDArray[Any]]) -> list[Any]:
    device = _get().device(_kind)
    made = [tvm.runtime.tensor(array, device) for array in arrays]
    device.sync()
    return made


def _flatten(value: Any) -> list[Any]:
    """Return the tensors of an output; a model with several has them in (nested) tuples."""
    if isinstance(value, Sequence):
        return [tensor for part in value for tensor in _flatten(part)]
    return [value]


def _get() -> DeviceSession:
    if _session is None:
        raise InvariantError("no session is open")
    return _session


def _failure_as_value(handler: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def call(params: dict[str, Any]) -> Any:
        try:
            return handler(params)
        except (MemoryError, TunefarmError):
            raise
        except Exception as error:  # noqa: BLE001  (TVM's many: a kernel that does not run is data)
            whole = " ".join(str(error).split())
            text = f"{type(error).__name__}: {clean(whole, 500)}"
        # Outside of the block: the traceback held on to what came from the session.
        devices_fault = is_devices_fault(whole)
        poisoned = devices_fault or poisons(whole)
        lost = not poisoned and not _get().is_alive()
        if lost or poisoned:
            hang_up({})
        if (reason := setups_fault(whole)) is not None:
            raise InvalidInputError(f"{reason} ({text})", code="gpu-set-up")
        return {"failure": text, "session_lost": lost, "poisoned": poisoned, "devices_fault": devices_fault}

    return call


HANDLERS = {
    "connect": connect,
    "hang_up": hang_up,
    "time_other": _failure_as_value(time_other),
    "check_artifact": _failure_as_value(check_artifact),
    "run_untuned": _failure_as_value(run_untuned),
    "compare_kernel": _failure_as_value(compare_kernel),
    "check_model": _failure_as_value(check_model),
    "time_model": _failure_as_value(time_model),
}

"""A device that sends TVM's client something else than answers: nothing of it reaches the client, and the device is found out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_device import (
    ALLOCATE,
    CALL_FUNC,
    COPY_ACK,
    COPY_AMONG,
    COPY_FROM,
    COPY_TO,
    DATA_TYPE,
    DEVICE,
    EXCEPTION,
    FUNCTION,
    GET_ATTRIBUTE,
    GET_FUNCTION,
    INIT_SERVER,
    INT,
    MODULE,
    POINTER,
    RETURN,
    TENSOR,
    TENSOR_POINTER,
    Attack,
    HostileDevice,
    Victim,
    frame,
    handle,
    none,
    number,
    sequence,
    tensor,
    text,
)

from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.calibration import calibrate
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.interfaces import MeasureInput
from tunefarm_tuning.measure.peak import measure_peak
from tunefarm_tuning.measure.runner.rpc import RpcRunner
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.workloads import sample_task

CPU = parse_target("llvm -mcpu=x86-64")
VERSION = b"0.8.0"
_BYTES = struct.pack("<iBBHi", DATA_TYPE, 1, 8, 1, 0)
_MAIN_MEMORY = struct.pack("<iii", DEVICE, 1, 0)


def _take_over(victim: Victim) -> None:
    """Make the client a server of this device."""
    victim.ask(INIT_SERVER, struct.pack("<Q", len(VERSION)) + VERSION + sequence())


def _pointer(answer: bytes) -> int:
    return int(struct.unpack("<iiQ", answer)[2])


def _allocated(victim: Victim) -> int:
    return _pointer(victim.ask(ALLOCATE, sequence(_MAIN_MEMORY, number(64), number(64), _BYTES)))


def call_a_function(victim: Victim) -> bytes:
    """Load a library into the client, or what else its functions do: here, only the list of its functions."""
    _take_over(victim)
    function = _pointer(victim.ask(GET_FUNCTION, sequence(text(b"ffi.FunctionListGlobalNamesFunctor"))))
    return victim.ask(CALL_FUNC, struct.pack("<Q", function) + sequence())


def read_its_memory(victim: Victim) -> bytes:
    _take_over(victim)
    address = _allocated(victim)
    return victim.ask(COPY_FROM, tensor((64,), data=address) + struct.pack("<Q", 64))


def change_its_memory(victim: Victim) -> bytes:
    _take_over(victim)
    written = b"\xc3" * 64
    address = _allocated(victim)
    victim.ask(COPY_TO, tensor((64,), data=address) + struct.pack("<Q", 64) + written)
    read = victim.ask(COPY_FROM, tensor((64,), data=address) + struct.pack("<Q", 64))
    assert read == written
    return read


REQUESTS: dict[str, Attack] = {
    "call a function": call_a_function,
    "read its memory": read_its_memory,
    "change its memory": change_its_memory,
}

LIES: dict[str, bytes] = {
    "a text that ends elsewhere": frame(RETURN, sequence(text(b"", says=(1 << 32) + (1 << 30)))),
    "a text that begins before itself": frame(RETURN, sequence(text(b"", says=(1 << 64) - 1))),
    "a function that is not there": frame(RETURN, sequence(handle(FUNCTION, 0x4141414141))),
    "a module that is not there": frame(RETURN, sequence(handle(MODULE, 0x4141414141))),
    "an exception without a text": frame(EXCEPTION, sequence()),
    "an exception whose text is a pointer": frame(EXCEPTION, sequence(handle(FUNCTION, 0x4141414141))),
    "fewer values than none": frame(RETURN, struct.pack("<i", -1)),
    "more values than there are": frame(RETURN, struct.pack("<i", 1 << 30) + none()),
    "a tensor of the answer's own memory": frame(
        RETURN, sequence(number(TENSOR_POINTER), struct.pack("<i", TENSOR_POINTER) + tensor((1,)))
    ),
    "a tensor alone": frame(RETURN, sequence(struct.pack("<i", TENSOR_POINTER) + tensor((1,)))),
    "a tensor of fewer dimensions than none": frame(
        RETURN,
        sequence(number(TENSOR), struct.pack("<i", TENSOR_POINTER) + tensor((), says=-5), handle(4, 1)),
    ),
    "a tensor of more dimensions than it says": frame(
        RETURN,
        sequence(number(TENSOR), struct.pack("<i", TENSOR_POINTER) + tensor((), says=1 << 29), handle(4, 1)),
    ),
    "bytes after the values": frame(RETURN, sequence(none()) + b"more"),
    "an answer without an end": struct.pack("<Qi", 1 << 62, RETURN),
    "a copy without an end": struct.pack("<Qi", (1 << 64) - 1, COPY_ACK),
    "a copy that nobody asked for": frame(COPY_ACK, b"x" * 64),
    "a frame without a code": struct.pack("<Q", 0) * 3,
    "a code that there is not": frame(99),
    "a copy within the client": frame(COPY_AMONG, sequence()),
}


def after_calls(calls: int, attack: Attack, *, of: int = CALL_FUNC) -> Attack:
    """Return an attack that comes in place of the answer to a later request: all before are answered with a small number."""

    def wait(victim: Victim) -> object:
        victim.send(frame(RETURN, sequence(handle(POINTER, 0x1234))))  # the first request was for a function
        left = calls
        while True:
            code, _ = victim.frame()
            if code == of:
                if left == 0:
                    return attack(victim)
                left -= 1
            if code == GET_FUNCTION:
                victim.send(frame(RETURN, sequence(handle(POINTER, 0x1234))))
            elif code in (CALL_FUNC, GET_ATTRIBUTE):
                victim.send(frame(RETURN, sequence(number(INT), number(4))))
            else:
                victim.send(frame(RETURN, sequence(none())))

    return wait


@pytest.fixture
def hostile() -> Iterator[Callable[[Attack], HostileDevice]]:
    """Devices by their attacks."""
    devices: list[HostileDevice] = []

    def start(attack: Attack) -> HostileDevice:
        devices.append(HostileDevice(attack))
        return devices[-1]

    yield start
    for device in devices:
        device.close()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_device_does_nothing_in_its_client(name: str, hostile: Callable[[Attack], HostileDevice]) -> None:
    device = hostile(REQUESTS[name])
    with closing(RpcRunner(device.device())) as runner:
        problem = runner.find_problem()
    assert device.gains == []
    assert problem is not None
    assert problem.code == BROKE_PROTOCOL


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize("name", LIES)
def test_an_answer_that_lies_does_not_reach_the_client(
    name: str, hostile: Callable[[Attack], HostileDevice]
) -> None:
    device = hostile(lambda victim: victim.send(LIES[name]))
    with closing(RpcRunner(device.device())) as runner:
        problem = runner.find_problem()
        assert problem is not None
        assert problem.code == BROKE_PROTOCOL
        # The client is well: it can be asked again, and sees the same.
        assert runner.find_problem() == problem
        assert runner.check() == problem.message


def _run(device: RemoteDevice) -> None:
    with closing(DeviceRun(device, kind="cpu", threads=1, limits=ChildLimits())) as runner:
        runner.connect()


CALLERS: dict[str, Callable[[RemoteDevice], object]] = {
    "calibration": lambda device: calibrate(device, CPU),
    "peak": lambda device: measure_peak(CPU, device, threads=1),
    "run": _run,
}


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("name", CALLERS)
def test_whoever_meets_a_hostile_device_says_so(
    name: str, hostile: Callable[[Attack], HostileDevice]
) -> None:
    device = hostile(call_a_function)
    with pytest.raises(DeviceLostError) as caught:
        CALLERS[name](device.device())
    assert caught.value.code == BROKE_PROTOCOL
    assert device.gains == []


def _run_on_gpu(device: RemoteDevice) -> None:
    with closing(DeviceRun(device, kind="cuda", threads=1, limits=ChildLimits())) as runner:
        runner.connect()


def _check_gpu(device: RemoteDevice) -> None:
    with closing(RpcRunner(replace(device, kind="cuda"))) as runner:
        problem = runner.find_problem()
        assert problem is not None
        raise DeviceLostError(problem.message, code=problem.code)


LATER: dict[str, tuple[Callable[[RemoteDevice], object], Attack]] = {
    "run, its threads set": (_run, after_calls(1, call_a_function)),
    "run, its threads counted": (_run, after_calls(2, call_a_function)),
    "run, its GPU asked for": (_run_on_gpu, after_calls(0, call_a_function, of=GET_ATTRIBUTE)),
    "runner of a GPU, its state asked for": (_check_gpu, after_calls(1, call_a_function)),
    "runner of a GPU, its function asked for": (_check_gpu, after_calls(0, call_a_function, of=GET_FUNCTION)),
}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", LATER)
def test_an_attack_in_an_open_session_is_found_out(
    name: str, hostile: Callable[[Attack], HostileDevice]
) -> None:
    caller, attack = LATER[name]
    device = hostile(attack)
    with pytest.raises(DeviceLostError) as caught:
        caller(device.device())
    assert caught.value.code == BROKE_PROTOCOL
    assert device.gains == []


def test_a_device_that_ends_an_open_session_is_lost(hostile: Callable[[Attack], HostileDevice]) -> None:
    device = hostile(after_calls(1, Victim.hang_up))
    with pytest.raises(DeviceLostError) as caught:
        _run(device.device())
    assert caught.value.code != BROKE_PROTOCOL


def _after_a_failure(victim: Victim) -> object:
    """Fail a candidate as a kernel would, then attack whoever asks whether the session is alive."""
    victim.send(frame(EXCEPTION, sequence(text(b"the kernel failed"))))
    while True:
        code, _ = victim.frame()
        if code == GET_FUNCTION:
            return call_a_function(victim)
        victim.send(frame(RETURN, sequence(none())))


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_an_attack_after_a_failure_is_not_the_candidates_fault(
    hostile: Callable[[Attack], HostileDevice], tmp_path: Path, *, is_interleaved: bool
) -> None:
    library = tmp_path / "kernel.so"
    library.write_bytes(b"what it holds is sent")
    attacks = iter([after_calls(1, _after_a_failure)])

    def attack_once(victim: Victim) -> object:
        """In later sessions it is well-behaved, if useless."""
        return next(attacks, after_calls(1000, _after_a_failure))(victim)

    device = hostile(attack_once)
    candidate = MeasureInput(task=sample_task("matmul", n=8), artifact_path=library)
    with closing(RpcRunner(device.device())) as runner:
        if is_interleaved:
            (result,) = runner.run_interleaved([candidate], rounds=1)
        else:
            (result,) = runner.run([candidate])
    assert result.failure is not None
    assert result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert result.failure.code == BROKE_PROTOCOL
    assert device.gains == []

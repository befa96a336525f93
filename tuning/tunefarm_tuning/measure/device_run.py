"""`DeviceRun`: runs kernels and networks on a device, and tells a kernel's failure from the device's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tunefarm_tuning.core.errors import DeviceLostError, InvalidInputError, TunefarmError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.process.running import is_background

_MODULE = "tunefarm_tuning.tvm.children.run"
_SESSION_SEC = 3600.0
"""The device ends a session after this time; the time limits of calls are shorter."""


class RunFailed(TunefarmError):  # noqa: N818  (a value to its caller, like the outcomes of a trial)
    """The kernel or network failed: it crashed, hung, or could not be loaded. The device works."""

    default_code = "run-failed"


def outputs_folder(folder: Path) -> Path:
    """Return where, in the folder of a `DeviceRun`, its calls may write; it exists then."""
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    return outputs


class DeviceRun:
    """Calls into `tvm.children.run`, on this machine or over RPC.

    Concurrency: one caller; `close` from any thread.
    Failure: `RunFailed` blames the kernel or network, `DeviceLostError` the device. The next call opens a new session, in which
        nothing is loaded.

    Args:
        device: None is this machine.
        kind: ``"cpu"`` or ``"cuda"``.
        threads: The number of threads that kernels run on.
        limits: Limits of the child process on this machine.
        folder: Where the files lie that calls name; they write into its `outputs_folder` alone. None if no call names files.
        connect_timeout_sec: Seconds that the device may take to open a session; ten times as many in the background, where a child waits
            for an idle core.
    """

    def __init__(
        self,
        device: RemoteDevice | None,
        *,
        kind: str,
        threads: int,
        limits: ChildLimits,
        folder: Path | None = None,
        connect_timeout_sec: float = 60.0,
    ) -> None:
        self._device = device
        self._kind = kind
        self._threads = threads
        self._connect_timeout_sec = connect_timeout_sec * (10 if is_background() else 1)
        self._connected = False
        self._parts: dict[str, Any] = {}
        self.libraries: dict[str, str] = {}
        """Versions of the libraries that kernels may call, by name, once a session is open."""
        self._child = ChildProcess(
            _MODULE,
            limits=limits,
            access=Access(
                reads=() if folder is None else (folder,),
                writes=() if folder is None else (outputs_folder(folder),),
                device=None if device is None else device.address,
                gpu=device is None,
            ),
            env={"TVM_NUM_THREADS": str(threads)},
        )

    def connect(self) -> int:
        """Open the session if none is open; return the number of threads that kernels run on.

        Raises:
            DeviceLostError: If the device is away.
            InvalidInputError: If the machine has no device of this kind (code no-device).
        """
        if self._connected and self._child.alive:
            return self._threads
        try:
            self._child.start()  # a ticket does not last long
            reply = self._child.call(
                "connect",
                {
                    "address": self._device.opening(self._child.relay_key) if self._device else None,
                    "kind": self._kind,
                    "threads": self._threads,
                    "timeout_sec": _SESSION_SEC,
                },
                timeout_sec=self._connect_timeout_sec,
            )
        except ChildClosed:
            raise
        except ChildTimedOut as error:
            raise DeviceLostError(
                f"device {self._name} opened no session within {self._connect_timeout_sec:g} s"
            ) from error
        except ChildFailed as error:
            raise DeviceLostError(f"no session with device {self._name}: {error.message}") from error
        if not reply["device_exists"]:
            why = f": {reply['why']}" if reply["why"] else ""
            raise InvalidInputError(f"{self._name} has no {self._kind} device{why}", code="no-device")
        self._connected = True
        self._threads = int(reply["threads"])
        self.libraries = dict(reply["libraries"])
        return self._threads

    def allow(self, *files: Path) -> None:
        """Let calls name files that are not in the folder. If the child has to start anew, nothing is loaded afterwards."""
        self._child.allow(*files)

    def use_parts(self, models: Sequence[Path], recorded: Sequence[Mapping[str, str]] = ()) -> None:
        """Run these parts of the networks of later calls in ONNX Runtime.

        Args:
            models: The ONNX model of each part.
            recorded: What each part returns (see `InputSet.parts`) when a network is timed where ONNX Runtime is missing.
        """
        if models:
            self._parts = {"parts": {"models": [str(model) for model in models], "recorded": list(recorded)}}

    def call(self, method: str, params: Mapping[str, Any], *, timeout_sec: float) -> dict[str, Any]:
        """Call a handler of the child, on the device.

        Args:
            method: The handler's name in `tvm.children.run`.
            params: Its parameters, as JSON values.
            timeout_sec: Wall-clock limit of the call.

        Returns:
            The handler's reply.

        Raises:
            RunFailed: If the kernel or network failed (codes run-failed, run-crashed, run-timeout).
            DeviceLostError: If the device failed.
            InvalidInputError: If the device's machine is set up wrongly, so that nothing runs there (code gpu-set-up).
        """
        self.connect()
        try:
            reply: dict[str, Any] = self._child.call(
                method, {**params, **self._parts}, timeout_sec=timeout_sec
            )
        except ChildClosed:
            raise
        except InvalidInputError:
            self._connected = False
            raise
        except ChildTimedOut as error:
            self._blame(RunFailed(f"was not done within {timeout_sec:g} s", code="run-timeout"), error)
        except ChildFailed as error:
            self._blame(RunFailed(error.message, code="run-crashed", detail=error.detail), error)
        if "failure" not in reply:
            return reply
        if reply["poisoned"]:
            if self._device is None:
                self._child.kill()
            if reply["devices_fault"]:
                self._connected = False
                raise DeviceLostError(f"device {self._name}: {reply['failure']}")
            self._blame(RunFailed(reply["failure"]), None)
        if not reply["session_lost"]:
            raise RunFailed(reply["failure"])
        return self._blame(RunFailed(f"took its session down: {reply['failure']}", code="run-crashed"), None)

    def _blame(self, failed: RunFailed, cause: Exception | None) -> NoReturn:
        """Raise `failed` if the device still opens sessions, else `DeviceLostError`."""
        self._connected = False
        if self._device is not None:
            self.connect()
        raise failed from cause

    def hang_up(self) -> None:
        """Close the session: the next call opens a new one, in which nothing is loaded."""
        self._connected = False
        if not self._child.alive:
            return
        try:
            self._child.call("hang_up", {}, timeout_sec=self._connect_timeout_sec)
        except ChildClosed:
            raise
        except ChildFailed:
            return  # the session ended with the child

    def close(self) -> None:
        """End the child and its session; a running call then raises `ChildClosed`."""
        self._child.close()

    @property
    def _name(self) -> str:
        return self._device.key if self._device else "this machine"

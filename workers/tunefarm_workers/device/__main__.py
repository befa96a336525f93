"""``python -m tunefarm_workers.device``: the agent's process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process.disk_watch import write_limit
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_tuning.process.sandbox import check_sandbox
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_workers.device.agent import Agent, lock_folder
from tunefarm_workers.device.description import describe
from tunefarm_workers.device.enrolment import credential, enrol_all, unwritable
from tunefarm_workers.device.fleet import EXIT_REFUSED, Fleet
from tunefarm_workers.device.gpu.cuda_check import check_cuda
from tunefarm_workers.device.gpu.devices import LentDevice, devices_of
from tunefarm_workers.device.json_log import log_as_json
from tunefarm_workers.device.rpc.session_user import choose, device_files
from tunefarm_workers.device.settings import farm_url_in, is_open_to_others, read_settings

log = logging.getLogger("tunefarm.device")

_LOOK_SEC = 0.05


def main(argv: Sequence[str] | None = None) -> int:
    """Lend this machine, or its GPUs, until SIGTERM; return the exit code."""
    forbid_inspection()
    fields: dict[str, str] = {}
    log_as_json(fields)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    wait = _wait_for_stop()
    try:
        check_sandbox()
        write_limit()
        settings = read_settings(argv, farm_url=lambda file: _farm_url(file, wait))
        if is_open_to_others(settings.url):
            log.warning(
                "%s is not HTTPS: others on the network can read this device's credential, and can answer as the farm. Use a private "
                "network, or a proxy that speaks TLS",
                settings.url,
            )
        devices = devices_of(settings)
        own = devices[0].settings if len(devices) == 1 else settings
        fields.update(device=own.name, device_key=own.device_key)
        try:
            lock_folder(own.work_dir)
        except BlockingIOError:
            print(f"device: another agent named {own.name} runs on this machine", file=sys.stderr)
            return EXIT_REFUSED
        except OSError as error:
            raise unwritable(error) from error
        if len(devices) > 1:
            goes_on = enrol_all(settings, [device.settings for device in devices], wait)
            return Fleet(settings, devices).run(wait) if goes_on else 0
        _lend(devices[0], fields, wait)
    except _Stopped:
        return 0
    except TunefarmError as error:
        print(f"device: {error.message}", file=sys.stderr)
        return EXIT_REFUSED
    return 0


def _farm_url(file: Path, wait: Callable[[float], bool]) -> str:
    """Return the URL of this machine's farm once it is up; find out meanwhile what this machine is, for `describe`.

    Raises:
        _Stopped: If `wait` says to stop.
    """
    with ThreadPoolExecutor(1, "describe") as executor:
        asked = executor.submit(detect_host_target)
        while (url := farm_url_in(file)) is None:
            if wait(_LOOK_SEC):
                raise _Stopped
        with contextlib.suppress(TunefarmError):  # who needs it asks again, and hears why
            asked.result()
    return url


class _Stopped(Exception):  # noqa: N818  (an outcome, caught in `main`)
    """The agent is to end before it began."""


def _lend(device: LentDevice, fields: dict[str, str], wait: Callable[[float], bool]) -> None:
    sessions = choose(device.settings.session_user, devices=device_files() if device.gpu else ())
    if sessions.user is None:
        level = logging.WARNING if os.geteuid() == 0 else logging.INFO
        log.log(level, "sessions run as the agent's user: %s", sessions.why)
    key = credential(device.settings, wait)
    if key is not None:
        described = describe(device.settings, device.gpu)
        if described.kind == "cuda":
            check_cuda(None if device.gpu is None else device.gpu.uuid)
        Agent(
            device.settings,
            key,
            described,
            gpu=device.gpu,
            emit=lambda event: _emit(event, fields),
            sessions=sessions,
        ).run(wait)


def _emit(event: dict[str, Any], fields: dict[str, str]) -> None:
    fields["device_id"] = event["device_id"]
    with contextlib.suppress(OSError):  # nobody needs to listen
        print(json.dumps(event), flush=True)


def _wait_for_stop() -> Callable[[float], bool]:
    """Return a function that sleeps, and says whether SIGTERM or SIGINT came, before or meanwhile."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def stop(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"x")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return lambda seconds: bool(select.select([reading], [], [], seconds)[0])


if __name__ == "__main__":
    sys.exit(main())

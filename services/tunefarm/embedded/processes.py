"""The farm's processes: their command lines, and the signs that they are ready."""

from __future__ import annotations

import json
import re
import secrets
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tunefarm.embedded import valkey
from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmOptions
from tunefarm_tuning.process.sandbox import SANDBOX_VARIABLES

_CREDENTIALS = ("TUNEFARM_URL", "TUNEFARM_API_KEY", "TUNEFARM_API_KEY_FILE")


@dataclass(slots=True, kw_only=True)
class Facts:
    """Facts about the running farm; processes add theirs when they come up.

    Ports stay the same over restarts, so that clients continue.
    """

    home: FarmHome
    options: FarmOptions
    valkey_server: str
    valkey_port: int | None = None
    valkey_password: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    gateway_port: int | None = None
    url: str | None = None

    def farm_environment(self) -> dict[str, str]:
        """Return the settings of API and worker."""
        return {
            # One machine with one clock: a killed worker is noticed sooner than across a network.
            "TUNEFARM_LEASE_SEC": "20",
            **{f"TUNEFARM_{name}": value for name, value in self.options.settings.items()},
            "TUNEFARM_DATABASE_URL": self.home.database_url,
            "TUNEFARM_BROKER_URL": f"redis://:{self.valkey_password}@127.0.0.1:{self.valkey_port}/0",
            "TUNEFARM_STORE_DIR": str(self.home.store_dir),
            "TUNEFARM_GATEWAY": f"{self._gateway_host}:{self.gateway_port}",
            "TUNEFARM_GATEWAY_DIR": str(self.home.gateway_dir),
            "TUNEFARM_SIGNING_KEY": str(self.home.signing_key),
        }

    @property
    def _gateway_host(self) -> str:
        """The host that the worker reaches the gateway by, which listens where the API does."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.options.host, self.options.host)  # noqa: S104
        return f"[{host}]" if ":" in host else host


class FarmProcess(ABC):
    """A process of the farm, a child of the supervisor: how it is started, and the signs that it is ready.

    Attributes:
        name: Also its log's.
        needs: Processes that it works with; they end after it.
        starts_after: Processes that must have been up before it is started the first time; None for all that it needs. One that is started
            earlier waits by itself, and does meanwhile what it can.
        grace_sec: Seconds in which it may end by itself after SIGTERM.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    starts_after: ClassVar[tuple[str, ...] | None] = None
    grace_sec: ClassVar[float]

    @abstractmethod
    def command(self, facts: Facts) -> list[str]:
        """Return its command line."""

    def environment(self, facts: Facts, base: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Return its whole environment; `base` is the supervisor's. Of tunefarm's settings it gets those of the sandbox alone."""
        return {
            name: value
            for name, value in base.items()
            if not name.startswith("TUNEFARM_") or name in SANDBOX_VARIABLES
        }

    @abstractmethod
    def is_up(self, facts: Facts, output: str) -> bool:
        """Return whether the process is ready, judged by its output; add to `facts` what others need."""


class ServiceProcess(FarmProcess):
    """A process that has the farm's settings. The key of another farm, which the caller's client uses, is left out."""

    def environment(self, facts: Facts, base: Mapping[str, str]) -> dict[str, str]:
        own = {name: value for name, value in base.items() if name not in _CREDENTIALS}
        return {**own, **facts.farm_environment()}


class Valkey(FarmProcess):
    """The broker."""

    name = "valkey"
    grace_sec = 5.0

    def __init__(self) -> None:
        self._was_up = False

    def command(self, facts: Facts) -> list[str]:
        if not self._was_up or facts.valkey_port is None:
            facts.valkey_port = (
                free_port()
            )  # if another process took the port meanwhile, the next start chooses another one
        path = valkey.write_configuration(
            facts.home.valkey_dir, port=facts.valkey_port, password=facts.valkey_password
        )
        return [facts.valkey_server, str(path)]

    def is_up(self, facts: Facts, output: str) -> bool:  # noqa: ARG002
        answers = valkey.answers(facts.valkey_port or 0, facts.valkey_password)
        self._was_up = self._was_up or answers
        return answers


class Gateway(FarmProcess):
    """The gateway, which devices and the worker dial. It listens where the API does, and waits for the keys that the API makes."""

    name = "gateway"
    grace_sec = 3.0

    def command(self, facts: Facts) -> list[str]:
        return [
            *(sys.executable, "-m", "tunefarm_workers.gateway", f"--dir={facts.home.gateway_dir}"),
            *(f"--host={facts.options.host}", f"--port={facts.gateway_port or 0}"),
        ]

    def is_up(self, facts: Facts, output: str) -> bool:
        for message in _json_lines(output):
            if isinstance(message.get("port"), int):
                facts.gateway_port = message["port"]
                return True
        return False


class Api(ServiceProcess):
    """The API, with the dashboard."""

    name = "api"
    needs = ("valkey", "gateway")
    grace_sec = 10.0

    def command(self, facts: Facts) -> list[str]:
        port = facts.options.port if facts.url is None else int(facts.url.rpartition(":")[2])
        return [
            *(sys.executable, "-m", "tunefarm_api", f"--host={facts.options.host}", f"--port={port}"),
            *("--migrate", "--make-signing-key", f"--key-file={facts.home.key_file}"),
            *(f"--device-token-file={facts.home.device_token_file}", f"--device-name={_device_name(facts)}"),
        ]

    def is_up(self, facts: Facts, output: str) -> bool:
        for message in _json_lines(output):
            if isinstance(message.get("url"), str) and len(message) == 1:
                facts.url = message["url"]
                facts.home.announce(facts.url)
                return True
        return False


class Worker(ServiceProcess):
    """A worker."""

    name = "worker"
    needs = ("api",)  # the API upgrades the database's schema
    grace_sec = 8.0  # no longer: a running step is repeated when its lease has expired

    def command(self, facts: Facts) -> list[str]:
        command = [sys.executable, "-m", "tunefarm_workers.worker"]
        if facts.options.concurrency is not None:
            command.append(f"--concurrency={facts.options.concurrency}")
        return command

    def is_up(self, facts: Facts, output: str) -> bool:  # noqa: ARG002
        return any(message.get("event") == "worker is ready" for message in _json_lines(output))


class Device(FarmProcess):
    """This machine's own device agent."""

    name = "device"
    needs = ("api",)
    starts_after = ("gateway",)  # it describes this machine, which takes seconds, while the API starts
    grace_sec = 10.0

    def command(self, facts: Facts) -> list[str]:
        options = facts.options
        return [
            *(sys.executable, "-m", "tunefarm_workers.device", f"--work-dir={facts.home.device_dir}"),
            *(f"--device-key={options.device_key}", f"--name={_device_name(facts)}"),
            # Not the farm's own key: a device runs what it is sent.
            *(f"--target={options.target}", f"--token-file={facts.home.device_token_file}"),
            f"--farm-file={facts.home.endpoint_file}",
        ]

    def is_up(self, facts: Facts, output: str) -> bool:  # noqa: ARG002
        return any(
            message.get("event") == "state" and message.get("online") for message in _json_lines(output)
        )


def _device_name(facts: Facts) -> str:
    return facts.options.device_name or _host_name()


def all_processes() -> tuple[FarmProcess, ...]:
    """Return the processes of a farm, in the order in which they are started."""
    return (Valkey(), Gateway(), Api(), Worker(), Device())


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _json_lines(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    yield message


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._")[:100] or "local"

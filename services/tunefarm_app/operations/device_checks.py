"""Checks of devices, gateway and versions; `doctor` runs them."""

from __future__ import annotations

from collections import Counter

from tunefarm_app.devices.agent_info import sessions_of
from tunefarm_app.identity.authority import Authority
from tunefarm_app.operations.check_results import CheckResult, failed, judge_versions, ok, warning
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import host_and_port
from tunefarm_db.values import UP_STATES, Device, DeviceState
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.tunnel import client_context, dial
from tunefarm_tuning.target.linker import missing_linker
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import versions

_TIMEOUT_SEC = 3.0
_MOST_NAMED = 5
SLOW = 1.25
SLOW_ON_ALL_CORES = 2.0
"""A device slower than its reference by these factors gets a warning. Runs on all cores are disturbed more easily."""


_ADVICE = {
    DeviceState.OFFLINE: "offline: start its agent (`tunefarm device join`). If the agent runs, read its log.",
    DeviceState.CHECKING: "checking: a worker has to calibrate it. If that takes more than a minute, no worker serves the queue "
    "tune: start a worker with `tunefarm worker --queues tune`.",
    DeviceState.QUARANTINED: "quarantined: a clean calibration releases it. If a person quarantined it, or it broke TVM's protocol, use "
    "`tunefarm device release`.",
    DeviceState.DRAINING: "draining: a person took it out of work; `tunefarm device release` gives it work again.",
}


def check_gateway(services: Services) -> CheckResult:
    """Whether the gateway answers as this farm's."""
    settings = services.settings
    if not settings.gateway or settings.gateway_dir is None:
        if settings.engine == "replay":
            return ok("gateway", "no gateway is needed: measurements are replayed")
        return failed(
            "gateway",
            "the farm has no gateway, so no device can join it",
            "Start a gateway (`python -m tunefarm_workers.gateway --port 9443`), and set TUNEFARM_GATEWAY and TUNEFARM_GATEWAY_DIR.",
        )
    host, port = host_and_port(settings.gateway)
    try:
        context = client_context(Authority.read(settings.gateway_dir).certificate)
        dial(host, port, context, timeout_sec=_TIMEOUT_SEC).close()
    except (OSError, ValueError, InvalidInputError) as error:
        return failed(
            "gateway",
            f"{settings.gateway} does not answer as this farm's gateway: {clean(str(error), 200)}",
            "Start it (`python -m tunefarm_workers.gateway --port 9443`) with this farm's TUNEFARM_GATEWAY_DIR, or correct "
            "TUNEFARM_GATEWAY.",
        )
    return ok("gateway", f"{settings.gateway} answers")


def check_devices(services: Services) -> CheckResult:
    """Whether a device can measure, and why the others cannot."""
    devices = _devices(services)
    if not devices:
        return failed(
            "devices",
            "there is none",
            "Add a device: run `tunefarm device join` on it, or `tunefarm serve` here.",
        )
    up = [device for device in devices if device.state in UP_STATES]
    counts = Counter(device.state.value for device in devices)
    message = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    down = [device for device in devices if device.state not in UP_STATES]
    if not down:
        slow = [text for device in devices if (text := _slow(device))]
        if slow:
            return warning(
                "devices",
                f"{message}: " + "; ".join(slow[:_MOST_NAMED]),
                "Possible causes are heat, a power limit or other work on the machine. `tunefarm device "
                "list --json` shows temperature and clocks. `calibration_sec` marks the affected records.",
            )
        return ok("devices", message)
    message += ": " + "; ".join(_why(device) for device in down[:_MOST_NAMED])
    states = {device.state for device in down}
    advice = " ".join(text for state, text in _ADVICE.items() if state in states)
    return (warning if up else failed)("devices", message, advice)


def check_linkers(services: Services) -> CheckResult:
    """Whether this machine can link for every device, as each worker must."""
    missing: dict[str, list[str]] = {}
    devices = [device for device in _devices_if_known(services) if device.state is not DeviceState.OFFLINE]
    for device in devices:
        if text := missing_linker(Target.from_json(device.target)):
            missing.setdefault(text, []).append(device.name)
    if not missing:
        return ok("linker", f"links for {quantities.plural(len(devices), 'device')}")
    texts = [f"for {', '.join(names[:_MOST_NAMED])}: {text}" for text, names in missing.items()]
    return warning(
        "linker",
        "; ".join(texts),
        "Install it on every machine with a worker: its kernels and artifacts are linked there. If no worker runs on this machine, "
        "run `tunefarm doctor` on a machine with a worker.",
    )


def check_sessions(services: Services) -> CheckResult:
    """Who runs sessions on the devices."""
    said = {device.name: sessions_of(device.info) for device in _devices_if_known(services)}
    by_text: dict[str, list[str]] = {}
    for name, (text, _) in said.items():
        if text:
            by_text.setdefault(text, []).append(name)
    if not by_text:
        return ok("sessions", "no device says which user runs them")
    texts = [
        f"{', '.join(names[:_MOST_NAMED])} {'runs its' if len(names) == 1 else 'run their'} sessions as {text}"
        for text, names in by_text.items()
    ]
    message = "; ".join(texts[:_MOST_NAMED])
    if any(is_root for _, is_root in said.values()):
        return warning(
            "sessions",
            message,
            "What the farm sends there runs as root, confined by the sandbox alone. On the device, create a user for sessions "
            "(`useradd --system tunefarm-session`), and start the agent again.",
        )
    return ok("sessions", message)


def check_versions(services: Services) -> CheckResult:
    """Whether this process and the devices have the compiler that tunefarm pins."""
    others = {device.name: _texts(device.info.get("versions")) for device in _devices_if_known(services)}
    return judge_versions({"this process": versions(), **others})


def _devices(services: Services) -> list[Device]:
    with services.uow.read() as repos:
        return list(repos.devices.list(limit=500).items)


def _devices_if_known(services: Services) -> list[Device]:
    """Return the devices; none if the database is away, which another check reports."""
    try:
        return _devices(services)
    except TransientError:
        return []


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _why(device: Device) -> str:
    return f"{device.name} is {device.state.value}" + (f" ({device.reason})" if device.reason else "")


def _slow(device: Device) -> str:
    """Return a text that says how much slower the device has become; empty if that is tolerable."""
    calibration = device.calibration or {}
    for took, held_against, limit, where in (
        ("time_sec", "reference_sec", SLOW, ""),
        ("all_cores_sec", "all_cores_reference_sec", SLOW_ON_ALL_CORES, " (all cores at work)"),
    ):
        if (
            calibration.get(took)
            and calibration.get(held_against)
            and calibration[took] > limit * calibration[held_against]
        ):
            return f"{device.name} is {calibration[took] / calibration[held_against]:.1f} times slower than before{where}"
    return ""

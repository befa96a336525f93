"""Exchange an enrolment token for the device's own credentials, which are kept in its folder."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError, TransientError, TunefarmError, reason_of
from tunefarm_tuning.core.output_file import write_durably
from tunefarm_workers.device.api_client import ApiClient
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.settings import CREDENTIAL_FILE, AgentSettings, read_secret

log = logging.getLogger("tunefarm.device")

_LOOK_SEC = 2.0
"""How often the token's file is looked at while the credential has ended."""


def credential(settings: AgentSettings, wait: Callable[[float], bool]) -> str | None:
    """Return the API key, after enrolling if there is a token. None if `wait` says to stop.

    A token that was used before does no harm to a device that has its credential: an agent can be started with the same
    command again and again.

    Raises:
        InvalidInputError: If the token is refused, and there is no credential; if none can be stored, ``unwritable-folder``.
    """
    if settings.token is None:
        return settings.api_key
    keys = _enrol(settings.token, [settings], wait)
    return None if keys is None else keys.get(settings.name, settings.api_key)


def enrol_all(
    machine: AgentSettings, devices: Sequence[AgentSettings], wait: Callable[[float], bool]
) -> bool:
    """Enrol all devices of the machine with its token, if it has one; return False if `wait` says to stop.

    Raises:
        InvalidInputError: If the token is refused, and no device has a credential; if none can be stored, ``unwritable-folder``.
    """
    return machine.token is None or _enrol(machine.token, devices, wait) is not None


def _enrol(
    token: str, devices: Sequence[AgentSettings], wait: Callable[[float], bool]
) -> dict[str, str] | None:
    """Enrol, store and return new credentials; none if the stored ones are still valid, as far as the agent knows."""
    try:
        _try_folders(devices)
        return _enrol_patiently(token, devices, wait)
    except OSError as error:
        raise unwritable(error) from error


def _enrol_patiently(
    token: str, devices: Sequence[AgentSettings], wait: Callable[[float], bool]
) -> dict[str, str] | None:
    """As `_enrol`, again and again while the farm is away."""
    is_answer_lost = False  # of a request that the farm may have carried out: the token is then used, and stored credentials end
    backoff = Backoff(first_sec=0.5, most_sec=10.0)
    while True:
        try:
            return _enrol_once(token, devices)
        except InvalidInputError as error:
            if is_answer_lost or not any(device.api_key for device in devices):
                raise _explained(error) from error
            log.info("not enrolled again: %s", error.message)
            return {}
        except TransientError as error:
            is_answer_lost = is_answer_lost or error.fields.get("was_sent", False)
            if not is_answer_lost and all(device.api_key for device in devices):
                return {}
            wait_sec = backoff.next_sec()
            log.warning("%s; trying to enrol again in %.1f s", error.message, wait_sec)
            if wait(wait_sec):
                return None


def _enrol_once(token: str, devices: Sequence[AgentSettings]) -> dict[str, str]:
    """Enrol; store and return the new credentials by the names of the devices.

    Raises:
        OSError: If a folder takes no credential. `_try_folders` says so before the token is used.
    """
    first = devices[0]
    with closing(ApiClient(first.url, token)) as api:
        keys = api.enrol([device.name for device in devices], first.device_key)
    for device in devices:
        _keep(device.work_dir / CREDENTIAL_FILE, keys[device.name])
        log.info("enrolled as %s in pool %s", device.name, device.device_key)
    return keys


def _try_folders(devices: Sequence[AgentSettings]) -> None:
    """Raise an OSError if a folder takes no credential."""
    for device in devices:
        probe = device.work_dir / f"{CREDENTIAL_FILE}.probe"
        _keep(probe, "")
        probe.unlink()


class TokenFile:
    """The file with a machine's enrolment token, in which a person leaves a new one when a credential has ended. Concurrency: one caller.

    Args:
        machine: Settings that name the file, and have the token that was in it; without a file, nothing is enrolled again.
        devices: The settings of the machine's devices, which are enrolled together: a token is valid once.
        clock: Monotonic seconds.
    """

    def __init__(
        self, machine: AgentSettings, devices: Sequence[AgentSettings], *, clock: Callable[[], float]
    ) -> None:
        self._path = machine.token_file
        self._devices = devices
        self._tried = machine.token
        self._clock = clock
        self._look_at = 0.0

    def enrol_again(self) -> dict[str, str]:
        """Enrol by the file's token, if it is another than the one that was tried last, and store the credentials.

        Returns:
            The new credentials by the names of the devices; empty if there are none. A failure is logged.
        """
        if self._path is None or self._clock() < self._look_at:
            return {}
        self._look_at = self._clock() + _LOOK_SEC
        try:
            token = read_secret(self._path, "enrolment token")
        except InvalidInputError:
            return {}
        if token == self._tried:
            return {}
        try:
            _try_folders(self._devices)
            new_keys = _enrol_once(token, self._devices)
        except (OSError, TransientError) as error:
            log.warning("%s; trying to enrol again in %.0f s", reason_of(error), _LOOK_SEC)
            return {}
        except InvalidInputError as error:
            self._tried = token
            log.warning("not enrolled again: %s", error.message)
            return {}
        self._tried = token
        return new_keys


class Renewal:
    """Replaces the device's own credential when the farm says that it ends soon, and takes a new one when it has ended.

    The successor is stored before it is used, and the former one stays valid until then: an agent that dies in between, or
    cannot write, goes on with what it has, and the farm asks again. Concurrency: one caller.

    Args:
        api: The agent's client.
        api_key: The key that it uses.
        settings: The device's. What is not in its credential's file is somebody else's to replace.
        clock: Monotonic seconds.
    """

    def __init__(
        self, api: ApiClient, api_key: str, settings: AgentSettings, *, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._api_key = api_key
        self._settings = settings
        self._file = settings.work_dir / CREDENTIAL_FILE
        self._token_file = TokenFile(settings, [settings], clock=clock)
        self._clock = clock
        self._backoff = Backoff(first_sec=5.0, most_sec=3600.0)
        self._act_at = 0.0

    def tick(self, *, key_ended: bool) -> None:
        """Replace the credential, if it is time; a failure is logged, and tried again later.

        Args:
            key_ended: Whether the farm no longer knows the credential.
        """
        if key_ended:
            self._take_new()
        if not self._api.renewal_is_due or self._clock() < self._act_at:
            return
        try:
            if not self._is_ours():
                log.warning(
                    "the credential of this device expires soon, and %s does not hold it: enrol the device again to replace it",
                    self._file,
                )
                self._act_at = math.inf
                return
            successor = self._api.renew()
            _keep(self._file, successor)
        except (OSError, TunefarmError) as error:
            wait_sec = self._backoff.next_sec()
            log.warning(
                "the credential could not be replaced: %s; trying again in %.0f s", reason_of(error), wait_sec
            )
            self._act_at = self._clock() + wait_sec
            return
        self._use(successor)
        log.info("the credential was replaced")

    def _take_new(self) -> None:
        """Use the credential that somebody else stored since, as a machine does for its GPUs, or that a new token in the file is exchanged for."""
        with suppress(InvalidInputError):
            stored = read_secret(self._file, "device's credential")
            if stored != self._api_key:
                self._use(stored)
                return
        if new_keys := self._token_file.enrol_again():
            self._use(new_keys[self._settings.name])

    def _use(self, api_key: str) -> None:
        self._api_key = api_key
        self._api.use(api_key)
        self._backoff.reset()

    def _is_ours(self) -> bool:
        try:
            return self._file.read_text(encoding="utf-8").strip() == self._api_key
        except FileNotFoundError:
            return False


def unwritable(error: OSError) -> InvalidInputError:
    """Return the error for a folder in which the agent cannot write."""
    return InvalidInputError(
        f"the agent cannot write into its folder ({error.filename}: {error.strerror}): make it writable, or name another with --work-dir",
        code="unwritable-folder",
    )


def _explained(error: InvalidInputError) -> InvalidInputError:
    """Return the error for a token that the API does not know, with the likely reasons."""
    if error.fields.get("status") != 401:
        return error
    return InvalidInputError(
        "the enrolment token is invalid: it was used already (perhaps by a request whose answer was lost), or has expired (`tunefarm "
        "device token` creates another)",
        code=error.code,
    )


def _keep(path: Path, key: str) -> None:
    # Its name, too: the former credential ends soon after the first use of this one.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(path, key + "\n", mode=0o600)

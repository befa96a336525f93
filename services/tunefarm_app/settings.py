"""Settings of the farm's processes, read from ``TUNEFARM_*`` environment variables once, at start."""

from __future__ import annotations

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.sandbox import SandboxMode

_GONE = ("TUNEFARM_TRACKER", "TUNEFARM_FURTHER_TRACKERS")
"""Variables that say how devices were reached before they dialled a gateway."""

OLDER_NAMES = {"max_attempts": "max_step_faults", "max_losses": "max_step_attempts"}
"""Settings by names that earlier releases gave them in the environment; these still work."""


def _host_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("must be host:port, for example 127.0.0.1:9443")
    return text


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of a setting ``host:port``; an IPv6 address without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _no_or_host_port(text: str) -> str:
    return _host_port(text) if text else text


def _rate(text: str) -> str:
    # As the library `limits` writes it, which a worker does not need.
    if text and re.fullmatch(r"[1-9][0-9]{0,8}/(second|minute|hour|day)", text) is None:
        raise ValueError("must be a number of requests in a time, for example 600/minute")
    return text


def _networks(text: str) -> str:
    for part in filter(None, text.split(",")):
        ip_network(part.strip())
    return text


class Settings(BaseSettings):
    """Settings of an API or worker process. Each field is ``TUNEFARM_<NAME>`` in the environment.

    Attributes:
        database_url: SQLAlchemy URL, ``sqlite:////var/lib/tunefarm/tunefarm.db`` or
            ``postgresql+psycopg://user:password@host/name``.
        broker_url: URL of Celery's broker, ``redis://[:password@]host:port/0`` (Redis or Valkey).
        store_dir: Folder of uploaded models and finished artifacts, shared by all API and worker processes.
        key_rate: How many requests each API key may make, ``600/minute`` or ``20/second``; empty for any number.
        device_credential_days: How long a device's credential is valid. Its agent replaces it after half of that by itself; a device that
            was away for longer enrols again.
        session_hours: How long a browser stays signed in, at most.
        session_idle_hours: How long it stays signed in without being used. A page that renews itself is no use.
        stranger_rate: How many requests without a valid key each address may make to an API process, the page to sign in and health included;
            empty for any number. Of a proxy before the API see `trusted_proxies`.
        attempt_rate: How many attempts each address has to sign in, and how many to use a key or token that is none; empty for any number.
        max_connections: How many connections an API process takes from one address, and a sixteenth of the files that it may open at least
            for others; more are answered with 429. Those of trusted proxies are not counted. 0: any number.
        max_requests: How many requests an API process takes at once, a quarter of them of one API key; more are answered with 503 or 429, and
            ``Retry-After``. Requests that need no key have an eighth of it beside that. Streams of open pages, heartbeats, metrics and health
            are not counted. 0: any number.
        trusted_proxies: Addresses or networks of the reverse proxies before the API, ``127.0.0.1,10.0.0.0/24``: the API believes their
            ``X-Forwarded-For`` and ``X-Forwarded-Proto``, and notes in the audit log where requests came from. Empty: it believes nobody.
        gateway: ``host:port`` of the farm's gateway, as workers reach it: devices dial it, and need no open port. Empty: the farm has
            none, and no device can join it.
        gateway_for_devices: ``host:port`` of the gateway, as devices reach it. Empty: the host of the API's URL that the device was given, and
            the gateway's port.
        gateway_dir: Folder of the keys that API, gateway, workers and devices know each other by. The API makes them at its first start: its
            folder ``authority`` is for the API alone, ``gateway`` for the gateway, ``worker`` for workers.
        signing_key: File of the Ed25519 key that workers sign artifacts with, made by `tunefarm signing create`. The API needs its file of
            public keys alone, beside it (``FILE.pub``). Empty: results are not signed.
        require_signatures: Whether every artifact of the farm must be signed. API and workers then do not start without `signing_key`, and the API
            hands out no artifact without a statement, whichever worker made it.
        max_upload_bytes: Largest accepted model, in bytes. Protobuf's own limit is 2 GiB.
        max_samples_bytes: Largest accepted file of samples, and the most that its arrays may have together once they are
            unpacked, in bytes.
        max_records_bytes: Largest accepted import of records, in bytes; a record takes about one kilobyte.
        keep_uploads_hours: An interrupted upload can be resumed for this many hours after its last byte; then its bytes
            are deleted. Samples that no job uses are deleted after the same time.
        import_memory_bytes: Address space of each child process that parses an uploaded model, in bytes.
        import_timeout_sec: Time limit for the import of a model.
        build_workers: Number of compiler processes per worker child; one per core if not set.
        round_size: Number of candidates of one round on a CPU; a round for a GPU has four times as many.
        lease_sec: Length of a lease of a step or a device. The holder renews it; a killed worker's step starts again
            after this time.
        max_step_faults: Failures of a step by its own fault (an error or a timeout) after which its job fails. An environment with the
            older name ``TUNEFARM_MAX_ATTEMPTS`` means this.
        max_step_attempts: Attempts of a step in all after which its job fails, if workers die or devices disappear. An environment with the
            older name ``TUNEFARM_MAX_LOSSES`` means this.
        step_time_limit_sec: Time limit of one import, extract or tune step.
        compile_time_limit_sec: Time limit of one compile step.
        timing_sec: Time for timing a compiled network beyond the usual number of samples, while other work on the device leaves
            it unclear how much faster it is.
        step_turn_sec: For this long, a worker runs a job's rounds one after another while its compilers are warm. After
            that it continues only while no other step waits for a worker.
        step_chain_sec: After this long, a worker sends the next round to the queue in any case.
        drain_sec: Time after which a stopping worker releases its unfinished step.
        device_stale_sec: Time without a heartbeat after which a device is offline.
        device_retry_sec: Time after which a step that found no free device tries again.
        calibrate_every_sec: How often a device runs the calibration kernel. It also runs it when it joins and after
            trouble. 0: never.
        calibrate_retry_sec: Time after which a device repeats a failed calibration.
        calibration_drift: A device is quarantined if its calibration takes this many times as long as it should, or
            this many times less.
        calibration_all_cores_drift: The same for the calibration kernel on all cores at once; no limit if not set. That
            time says little on a machine that does other work as well, such as building.
        peak_every_sec: How often a device's peak (operations and bytes per second) is measured again after its first
            three calibrations; it takes some seconds. 0: never, and no shares of a peak are shown.
        warm_children: How many child processes each worker child keeps that have loaded TVM already, for imports and compiles: each
            saves a second and takes about a quarter of a gigabyte. They start with a device's first calibration, an import or a compile.
        engine_idle_sec: Idle time after which a worker's compiler and measuring processes end.
        history_limit: Largest number of earlier records of a workload that a tuner learns from.
        keep_models_days: A model that no job has used for this many days is deleted; never if not set. The model of an
            unfinished job is kept.
        keep_artifacts_days: An artifact's file is deleted this many days after its job; never if not set. Its report is
            kept.
        max_drafts_bytes: Largest size of all drafts together: what jobs offer until they have an artifact. The oldest give way. 0: no
            job offers an untuned one by itself.
        network_timing_share: How much of a search may go into timing the whole network with the kernels so far, so that the job shows its
            latency early. 0: it is timed at the compile alone.
        network_timing_after_sec: Seconds of search before the first such timing.
        keep_failures_days: Messages of failed candidates (from the compiler, for example) are deleted this many days
            after their job; never if not set. Their outcomes are kept.
        keep_sources_days: A kernel's source is deleted this many days after it was made; never if not set. It is made
            again on request, as long as the workers have the compiler that made it.
        keep_audit_days: Entries of the audit log are deleted after this many days, at least 30; never if not set. An entry that stays says what
            is gone, so that the rest can still be verified. Export the log before, if it is to be kept.
        keep_traces_days: What a job spent its time on, second by second, is deleted this many days after it was noted.
        remember_days: What a compile found out about kernels and alternatives (that they are right, how fast they are) is used by
            later compiles for this many days.
        keep_deliveries_days: Deliveries to webhooks, and their results, are deleted this many days after they ended.
        keep_device_history_days: Charts of devices (use, temperature, load, clock), their calibrations and changes of
            state go back this many days. A device costs some ten thousand small rows.
        webhook_allow_private: Whether webhooks may lead to loopback and private addresses. Everybody who may register one can
            then make the API process send requests to its own machine and network. Addresses of cloud metadata services
            are always refused.
        sandbox: ``best-effort``: child processes that touch models, kernels or devices are confined as far as the kernel can;
            ``required``: they do not start without the whole sandbox (Linux 6.12); ``off``: they are not confined. See
            docs/security.md. Agents of devices and the engine as a library read the same variable.
        sandbox_read: Folders, separated by colons, that confined child processes may read and run programs from besides the
            system's: a compiler's, for example.
        sandbox_write_bytes: Room that the files of one child process may take on the disk together; a child that writes more is
            ended.
        engine: ``tvm``, or ``replay`` for a farm that answers from a synthetic cost function or from recorded trials,
            without TVM and device sessions; its artifacts cannot be run. For tests and simulations of the service.
        replay_sessions: Whether the engine ``replay`` opens a session on the device before each calibration and batch of measurements,
            under its lease and through the gateway, as the engine ``tvm`` does. Needs TVM, and real agents.
        log_level: Level of the JSON log on standard error.
    """

    model_config = SettingsConfigDict(env_prefix="TUNEFARM_", frozen=True, extra="ignore")

    database_url: SecretStr
    broker_url: SecretStr
    store_dir: Path
    key_rate: Annotated[str, AfterValidator(_rate)] = "6000/minute"
    device_credential_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    session_hours: Annotated[float, Field(gt=0, le=8760)] = 12.0
    session_idle_hours: Annotated[float, Field(gt=0, le=8760)] = 4.0
    stranger_rate: Annotated[str, AfterValidator(_rate)] = "1200/minute"
    attempt_rate: Annotated[str, AfterValidator(_rate)] = "30/minute"
    max_connections: NonNegativeInt = 256
    max_requests: NonNegativeInt = 256
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    gateway: Annotated[str, AfterValidator(_no_or_host_port)] = ""
    gateway_for_devices: Annotated[str, AfterValidator(_no_or_host_port)] = ""
    gateway_dir: Path | None = None
    signing_key: Path | None = None
    require_signatures: bool = False
    max_upload_bytes: PositiveInt = 2 << 30
    max_samples_bytes: PositiveInt = 256 << 20
    max_records_bytes: PositiveInt = 64 << 20
    keep_uploads_hours: PositiveFloat = 24.0
    import_memory_bytes: PositiveInt = 8 << 30
    import_timeout_sec: PositiveFloat = 120.0
    build_workers: PositiveInt | None = None
    round_size: Annotated[int, Field(ge=1, le=256)] = 8
    lease_sec: Annotated[float, Field(ge=1.0)] = 60.0
    max_step_faults: PositiveInt = 3
    max_step_attempts: PositiveInt = 20
    step_time_limit_sec: PositiveFloat = 300.0
    compile_time_limit_sec: PositiveFloat = 1800.0
    timing_sec: NonNegativeFloat = 15.0
    step_turn_sec: Annotated[float, Field(ge=0.0)] = 30.0
    step_chain_sec: Annotated[float, Field(ge=0.0)] = 240.0
    drain_sec: Annotated[float, Field(ge=0.0)] = 5.0
    device_stale_sec: PositiveFloat = 30.0
    device_retry_sec: PositiveFloat = 3.0
    calibrate_every_sec: Annotated[float, Field(ge=0.0)] = 600.0
    calibrate_retry_sec: PositiveFloat = 30.0
    calibration_drift: Annotated[float, Field(gt=1.0)] = 1.5
    calibration_all_cores_drift: Annotated[float, Field(gt=1.0)] | None = None
    peak_every_sec: Annotated[float, Field(ge=0.0)] = 21600.0
    warm_children: Annotated[int, Field(ge=0, le=16)] = 1
    engine_idle_sec: PositiveFloat = 120.0
    history_limit: Annotated[int, Field(ge=0)] = 512
    keep_models_days: PositiveFloat | None = None
    keep_artifacts_days: PositiveFloat | None = None
    max_drafts_bytes: NonNegativeInt = 2 << 30
    network_timing_share: Annotated[float, Field(ge=0.0, le=0.5)] = 0.03
    network_timing_after_sec: NonNegativeFloat = 60.0
    keep_failures_days: PositiveFloat | None = None
    keep_sources_days: PositiveFloat | None = None
    keep_audit_days: Annotated[float, Field(ge=30)] | None = None
    keep_traces_days: PositiveFloat = 30.0
    remember_days: PositiveFloat = 30.0
    keep_deliveries_days: PositiveFloat = 7.0
    keep_device_history_days: PositiveFloat = 90.0
    webhook_allow_private: bool = False
    sandbox: SandboxMode = SandboxMode.BEST_EFFORT
    sandbox_read: str = ""
    sandbox_write_bytes: Annotated[int, Field(gt=0)] = 16 << 30
    engine: Annotated[str, Field(pattern="^(tvm|replay)$")] = "tvm"
    replay_sessions: bool = False
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"

    @model_validator(mode="after")
    def _check_gateway(self) -> Self:
        if self.gateway and self.gateway_dir is None:
            raise ValueError("with TUNEFARM_GATEWAY, TUNEFARM_GATEWAY_DIR is needed")
        return self

    @model_validator(mode="after")
    def _check_signatures(self) -> Self:
        if self.require_signatures and self.signing_key is None:
            raise ValueError(
                "with TUNEFARM_REQUIRE_SIGNATURES, TUNEFARM_SIGNING_KEY is needed: a file that `tunefarm signing create` makes"
            )
        return self

    def redacted(self) -> dict[str, Any]:
        """Return the settings as JSON, without passwords: fit for a log."""
        data = self.model_dump(mode="json")
        for name in ("database_url", "broker_url"):
            data[name] = redact_url(getattr(self, name).get_secret_value())
        return data

    @property
    def objects_dir(self) -> Path:
        """The folder of the store with the object code of kernels that compiles made, in a folder for each model's file."""
        return self.store_dir / "kernels"

    @property
    def references_dir(self) -> Path:
        """The folder of the store with the outputs of ONNX Runtime that compiles compared with."""
        return self.store_dir / "references"


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; `overrides` win, and newer names win over older ones.

    Raises:
        InvalidInputError: If a variable is missing or wrong; the message names every one of them, never a value.
    """
    if gone := [name for name in _GONE if os.environ.get(name)]:
        raise InvalidInputError(
            f"{' and '.join(gone)}: no device waits at a tracker any more. Remove it, and set TUNEFARM_GATEWAY and TUNEFARM_GATEWAY_DIR: "
            "devices dial the farm's gateway (docs/how-to.md)",
            code="invalid-settings",
        )
    older = {
        name: os.environ[f"TUNEFARM_{old.upper()}"]
        for old, name in OLDER_NAMES.items()
        if f"TUNEFARM_{old.upper()}" in os.environ and f"TUNEFARM_{name.upper()}" not in os.environ
    }
    try:
        return Settings(**{**older, **overrides})
    except ValidationError as error:
        problems = "; ".join(
            f"TUNEFARM_{'.'.join(str(part) for part in item['loc']).upper()}: {item['msg'].lower()}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise InvalidInputError(f"the settings are not usable: {problems}", code="invalid-settings") from None


def redact_url(url: str) -> str:
    """Return `url` with ``***`` for its password, and without its query."""
    return re.sub(r"(//[^/?#:@]*):[^/?#]*@", r"\1:***@", url.partition("?")[0])

"""`TuningRecord`: an immutable measured fact, stored as one JSON object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.core.errors import InvalidRecordError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config

SCHEMA_VERSION = 1

SHORTEST_SEC, LONGEST_SEC = 1e-9, 86400.0
"""What a call may take in records from outside: more than a few cycles, and less than a day."""

CONFIRMED = "confirmed"
"""Key in `TuningRecord.extra` of a confirming record."""

GPU_CODE = "gpu_code"
"""Key in `TuningRecord.extra` of what a GPU's machine code uses (`target.gpu_launch.code_facts`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecord:
    """The result of one trial.

    A record holds only for its workload, target, device model and toolchain together: a lookup needs all four.

    Attributes:
        workload_key: `Workload.key`.
        target_key: `Target.key`.
        device_model: `DeviceInfo.model`.
        toolchain: Versions that built the kernel, as `toolchain.toolchain_key` writes them.
        space_key: `ConfigSpace.key` of the space that `config` is a point of.
        config: The config as applied.
        outcome: How the trial ended.
        samples_sec: Mean seconds per call, one value per sample; empty unless `outcome` is ok.
        build_sec: Wall-clock seconds of the build.
        measured_at: Unix time in seconds.
        tuner: Name of the tuner that proposed the config.
        message: The failure, for people; empty after a success.
        extra: Further facts as JSON values; `CONFIRMED` marks a confirming record.
        kernel: The kernel's name in a graph that has it (``"fused_conv2d_add_relu"``), for people; empty if it is not known. It and
            `shapes`, the shapes and element types of its arguments, do not tell records apart.
        certificate_sha256: Of a farm's own measurement: SHA-256 of the client certificate by which the device's agent was connected with
            the gateway. It and `ticket_jti`, the id of the token that opened the session, say where a record comes from, and do not tell
            records apart. In a file they are what its writer says; a farm's import does not take them.
    """

    workload_key: str
    target_key: str
    device_model: str
    toolchain: str
    space_key: str
    config: Config
    outcome: Outcome
    samples_sec: tuple[float, ...]
    build_sec: float
    measured_at: float
    tuner: str = ""
    message: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    kernel: str = field(default="", compare=False)
    shapes: str = field(default="", compare=False)
    certificate_sha256: str | None = field(default=None, compare=False)
    ticket_jti: str | None = field(default=None, compare=False)

    @property
    def cost_sec(self) -> float | None:
        """Median of the samples in seconds per call; None if there are none."""
        return median(self.samples_sec) if self.samples_sec else None

    @property
    def confirmed(self) -> bool:
        """Whether this is a confirmation in turn with the other best configs of the task (see `records.selection`)."""
        return self.extra.get(CONFIRMED) is True

    def to_json(self) -> str:
        """Return the record as one line of JSON, without a newline."""
        return json.dumps(
            {
                "version": SCHEMA_VERSION,
                **({"kernel": self.kernel} if self.kernel else {}),
                **({"shapes": self.shapes} if self.shapes else {}),
                "workload": self.workload_key,
                "target": self.target_key,
                "device_model": self.device_model,
                "toolchain": self.toolchain,
                "space": self.space_key,
                "config": self.config.to_json(),
                "outcome": self.outcome.value,
                "samples_sec": list(self.samples_sec),
                "build_sec": self.build_sec,
                "measured_at": self.measured_at,
                "tuner": self.tuner,
                "message": self.message,
                "extra": dict(self.extra),
                **({"certificate_sha256": self.certificate_sha256} if self.certificate_sha256 else {}),
                **({"ticket_jti": self.ticket_jti} if self.ticket_jti else {}),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> TuningRecord:
        """Return the record with these JSON values, by the fields' names; values without a field are ignored."""
        known = {name: values[name] for name in _FIELDS if name in values}
        known["config"] = Config.from_json(known["config"])
        known["outcome"] = Outcome(known["outcome"])
        known["samples_sec"] = tuple(known["samples_sec"])
        known["extra"] = known.get("extra") or {}
        known["kernel"] = known.get("kernel") or ""
        return cls(**known)

    @classmethod
    def from_json(cls, line: str) -> TuningRecord:
        """Read a line that `to_json` wrote.

        Raises:
            InvalidRecordError: If it is not a record, or of another schema version; the message says what is missing or wrong.
        """
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise InvalidRecordError("not a tuning record: no JSON object")
            if data["version"] != SCHEMA_VERSION:
                raise InvalidRecordError(
                    f"record has schema version {data['version']!r}; this tunefarm reads version {SCHEMA_VERSION}"
                )
            if not isinstance(data["samples_sec"], list):  # a text has letters to go through, too
                raise TypeError("samples_sec must be an array")
            samples = tuple(float(s) for s in data["samples_sec"])
            outcome = Outcome(data["outcome"])
            if (outcome is Outcome.OK) != bool(samples) or any(not 0 < s < float("inf") for s in samples):
                raise ValueError("samples_sec must be positive, and present exactly when the outcome is ok")
            return cls(
                workload_key=_text(data, "workload"),
                target_key=_text(data, "target"),
                device_model=_text(data, "device_model"),
                toolchain=_text(data, "toolchain"),
                space_key=_text(data, "space"),
                config=Config.from_json(data["config"]),
                outcome=outcome,
                samples_sec=samples,
                build_sec=_number(data, "build_sec"),
                measured_at=_number(data, "measured_at"),
                tuner=_text(data, "tuner", ""),
                message=_text(data, "message", ""),
                extra=dict(data.get("extra", {})),
                kernel=_text(data, "kernel", ""),
                shapes=_text(data, "shapes", ""),
                certificate_sha256=_text_or_none(data, "certificate_sha256"),
                ticket_jti=_text_or_none(data, "ticket_jti"),
            )
        except InvalidRecordError:
            raise
        except KeyError as error:
            raise InvalidRecordError(f"not a tuning record: it has no {error}") from error
        except json.JSONDecodeError as error:
            raise InvalidRecordError(f"not a tuning record: no JSON ({error})") from error
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidRecordError(f"not a tuning record ({type(error).__name__}: {error})") from error


def _text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = data[name] if default is None else data.get(name, default)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text")
    return value


def _text_or_none(data: Mapping[str, Any], name: str) -> str | None:
    return None if data.get(name) is None else _text(data, name)


def _number(data: Mapping[str, Any], name: str) -> float:
    value = float(data[name])
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number")
    return value


_FIELDS = tuple(field.name for field in fields(TuningRecord))


def load_records(path: Path | str) -> Iterator[TuningRecord]:
    """Yield the records of a JSON-lines file.

    Blank lines are skipped, and so is an incomplete last line, which a killed writer left.

    Raises:
        InvalidRecordError: At the first other line that is not a record; the message has its number.
    """
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield TuningRecord.from_json(line.decode("utf-8"))
            except (InvalidRecordError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n"):
                    return
                reason = error.message if isinstance(error, InvalidRecordError) else f"not text ({error})"
                raise InvalidRecordError(f"{path}, line {number}: {reason}", line=number) from error

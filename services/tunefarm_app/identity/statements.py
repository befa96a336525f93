"""What the farm attests: of an artifact how it was compiled, of a backup what it holds. As statements of in-toto (v1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from tunefarm_tuning.provenance.statement import BACKUP, COMPILE, PROVENANCE

BUILDER = "urn:tunefarm:worker"
"""What the provenance names as its builder; which farm's it was, the signature says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A file that went into an artifact."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How an artifact was compiled.

    Attributes:
        job_id: The job that compiled it.
        asked: What the job was asked for: target, precision and so on.
        toolchain: The key of the compiler's version.
        devices: The devices, each as ``id``, ``device_model`` and ``role``: it ``checked`` the artifact or ``measured`` records.
        materials: The model, and samples.
        records_sha256: SHA-256 of the artifact's ``records.jsonl``: the records whose kernels are inside.
        versions: Versions by package, those of tunefarm, apache-tvm and llvm among them.
        began_at: When the compile began, Unix seconds.
        ended_at: When it ended.
        simulated: Whether a farm without a compiler made it (`Settings.engine`).
    """

    job_id: str
    asked: Mapping[str, Any]
    toolchain: str
    devices: Sequence[Mapping[str, str]]
    materials: Sequence[Material]
    records_sha256: str | None
    versions: Mapping[str, str]
    began_at: float
    ended_at: float
    simulated: bool = False


def artifact_statement(name: str, sha256: str, provenance: Provenance) -> bytes:
    """Return the statement about an artifact, with SLSA's provenance (v1) as its predicate."""
    dependencies: list[dict[str, Any]] = [
        {"name": material.name, "digest": {"sha256": material.sha256}} for material in provenance.materials
    ]
    if provenance.records_sha256 is not None:
        dependencies.append({"name": "records.jsonl", "digest": {"sha256": provenance.records_sha256}})
    dependencies += [
        {"uri": f"pkg:pypi/{package}@{provenance.versions[package]}"}
        for package in ("tunefarm", "apache-tvm")
        if package in provenance.versions
    ]
    predicate = {
        "buildDefinition": {
            "buildType": COMPILE,
            "externalParameters": dict(provenance.asked),
            "internalParameters": {
                "toolchain": provenance.toolchain,
                "devices": [dict(device) for device in provenance.devices],
                **({"simulated": True} if provenance.simulated else {}),
            },
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": dict(provenance.versions)},
            "metadata": {
                "invocationId": provenance.job_id,
                "startedOn": _utc(provenance.began_at),
                "finishedOn": _utc(provenance.ended_at),
            },
        },
    }
    return _statement({name: sha256}, PROVENANCE, predicate)


def backup_statement(subjects: Mapping[str, str], created_at: float) -> bytes:
    """Return the statement about a backup, whose manifest names the SHA-256 of everything in it."""
    return _statement(subjects, BACKUP, {"createdOn": _utc(created_at)})


def _statement(subjects: Mapping[str, str], predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    described = [
        ResourceDescriptor(name=name, digest={"sha256": sha256}).pb for name, sha256 in subjects.items()
    ]
    statement = Statement(described, predicate_type, predicate)
    statement.validate()
    # The predicate as it is: protobuf would write 2 cores as 2.0.
    document = {**MessageToDict(statement.pb), "predicate": predicate}
    return json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

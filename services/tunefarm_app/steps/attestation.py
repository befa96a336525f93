"""Signs what a compile step made: who compiled it, from what, and how.

The step's process signs, which holds the store's and the database's trust. The children that touched the network's bytes cannot read
the key, and no later change of the store or the database can make another file fit the envelope.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.identity.signing import SigningKey
from tunefarm_app.identity.statements import Material, Provenance, artifact_statement
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_app.storage.job_options import precision_of
from tunefarm_db.values import Device, Job, Record, SampleFile
from tunefarm_db.values import Model as ModelRow
from tunefarm_tuning.artifact.pack import RECORDS
from tunefarm_tuning.core.errors import InvalidInputError, TransientError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFacts:
    """What a compile was made of.

    Attributes:
        job: The job whose step it is.
        model: The uploaded model.
        compiled_sha256: SHA-256 of the network that was compiled: the model's, or that of its quantised form.
        samples: The samples that it was compared on.
        device: The device that checked it; None for a draft.
        records: The best record of each workload; those of the kernels inside are in the artifact's ``records.jsonl``.
        took_sec: How long the compile took.
    """

    job: Job
    model: ModelRow
    compiled_sha256: str
    samples: Sequence[SampleFile] = ()
    device: Device | None = None
    records: Mapping[str, Record] = field(default_factory=dict)
    took_sec: float = 0.0


class Signer:
    """Signs artifacts, if the farm has a key. Made before the compile, so that a key that cannot be used costs no compile."""

    def __init__(self, key: SigningKey | None) -> None:
        self._key = key

    @classmethod
    def of(cls, services: Services) -> Signer:
        """Read the farm's key.

        Raises:
            TransientError: ``no-signing-key`` if it cannot be read.
        """
        path = services.settings.signing_key
        try:
            return cls(None if path is None else SigningKey.read(path))
        except InvalidInputError as error:
            raise TransientError(error.message, code=error.code) from error

    def sign(self, compiled: CompiledFile, blob: StoredBlob, facts: CompileFacts) -> str | None:
        """Return the envelope of an artifact, as it lies in the store; None if the farm signs nothing."""
        if self._key is None:
            return None
        return self._key.sign(
            artifact_statement(compiled.path.name, blob.sha256, _provenance(compiled, facts))
        )


def _provenance(compiled: CompiledFile, facts: CompileFacts) -> Provenance:
    job, model, now = facts.job, facts.model, time.time()
    materials = [Material(name=model.name, sha256=model.sha256)]
    if facts.compiled_sha256 != model.sha256:
        materials.append(Material(name="quantised.onnx", sha256=facts.compiled_sha256))
    materials += [Material(name=samples.name, sha256=samples.sha256) for samples in facts.samples]
    versions = {str(name): str(version) for name, version in compiled.manifest["versions"].items()}
    entries = compiled.manifest.get("entries", {})
    return Provenance(
        job_id=job.id,
        asked={
            "model": model.name,
            "target": dict(job.target),
            "precision": precision_of(job).value,
            "shapes": dict(model.shapes),
            "values": dict(model.values),
        },
        toolchain=str(compiled.manifest.get("toolchain", "")),
        devices=_devices(facts, compiled.manifest),
        materials=materials,
        records_sha256=entries[RECORDS]["sha256"] if RECORDS in entries else None,
        versions=versions,
        began_at=now - facts.took_sec,
        ended_at=now,
        simulated=bool(compiled.manifest.get("simulated")),
    )


def _devices(facts: CompileFacts, manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the device that checked the artifact, and those that measured the records inside."""
    checked = facts.device
    inside = {record["workload_key"] for record in manifest.get("records", ())}
    measured = {
        record.device_id: record.device_model
        for key, record in facts.records.items()
        if key in inside and record.device_id
    }
    return [
        *([] if checked is None else [_device(checked.id, checked.device_model, "checked")]),
        *(_device(device_id, measured[device_id], "measured") for device_id in sorted(measured)),
    ]


def _device(device_id: str, device_model: str, role: str) -> dict[str, str]:
    return {"id": device_id, "device_model": device_model, "role": role}

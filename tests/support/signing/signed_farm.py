"""A farm without a compiler that signs its results, and what attackers make of its envelopes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app_farm import Farm, farm_settings, make_farm

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.identity.signing import SigningKey, create_signing_key, public_path
from tunefarm_app.jobs.artifacts import signed_statement
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job


def signing_farm(folder: Path) -> tuple[Farm, Path]:
    """Return a farm and the file of its signing key; close its services."""
    key = folder / "signing" / "key.pem"
    create_signing_key(key)
    return make_farm(farm_settings(folder, device_retry_sec=0.01, step_turn_sec=0.0, signing_key=key)), key


def finished_job(farm: Farm, name: str = "net.onnx", seed: int = 1) -> Job:
    """Return a job that succeeded, whose artifact is in the store."""
    farm.add_device(f"dev-{seed}")
    model = farm.upload(Scenario(tasks=2), name)
    farm.run()
    job = farm.submit(model, trials=8, seed=seed)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return farm.job(job.id)


def saved(farm: Farm, job: Job, folder: Path) -> tuple[Path, Path]:
    """Write a job's artifact and its envelope into a folder, as a download does; return both files."""
    with farm.services.uow.read() as repos:
        name, envelope = signed_statement(repos, job)
        artifact = repos.artifacts.for_job(job.id)
    assert artifact is not None
    folder.mkdir(exist_ok=True)
    path, beside = folder / name, folder / f"{name}.intoto.jsonl"
    path.write_bytes(farm.services.blobs.path(artifact.sha256).read_bytes())
    beside.write_text(envelope)
    return path, beside


def payload_of(envelope: str | bytes) -> Any:
    return json.loads(base64.b64decode(json.loads(envelope)["payload"]))


def with_payload(envelope: str, change: Callable[[Any], None]) -> str:
    """Return the envelope with another payload under the old signature."""
    document, statement = json.loads(envelope), payload_of(envelope)
    change(statement)
    document["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps(document)


def resigned(envelope: str, key: Path, change: Callable[[Any], None]) -> str:
    """Return the envelope with another payload, signed by whoever has a key."""
    statement = payload_of(envelope)
    change(statement)
    return SigningKey.read(key).sign(json.dumps(statement).encode())


__all__ = [
    "finished_job", "payload_of", "public_path", "resigned", "saved", "signing_farm", "with_payload",
]  # fmt: skip

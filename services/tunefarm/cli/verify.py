"""``tunefarm verify``: who made an artifact, and from what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tunefarm.cli.base.output import Output
from tunefarm_tuning.core.untrusted_text import clean

_MOST_TEXT = 300


def verify_artifact(
    out: Output,
    artifact: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", exists=True, dir_okay=False, help="The file NAME.tunefarm.")
    ],
    key: Annotated[
        Path,
        typer.Option(
            "--key",
            "-k",
            metavar="FILE",
            envvar="TUNEFARM_VERIFY_KEY",
            help="File of the public keys that you trust; `tunefarm signing list --output FILE` writes a farm's.",
        ),
    ],
    envelope: Annotated[
        Path | None,
        typer.Option(
            "--envelope",
            metavar="FILE",
            help="The signed statement; by default ARTIFACT.intoto.jsonl, which `tunefarm jobs artifact` writes.",
        ),
    ] = None,
) -> None:
    """Verify that a farm that you trust made an artifact, and show what it attests: model, versions, devices, job, records.

    Needs no server, and loads nothing of the artifact. The exit code is 2 if it does not verify; the message says why.
    """
    from tunefarm_tuning.provenance.verification import verified

    with verified(artifact, key, envelope=envelope) as checked:
        sha256, statement = checked.sha256, checked.statement
    if out.json:
        out.data(
            {
                "verified": True,
                "artifact": str(artifact),
                "sha256": sha256,
                "key_id": statement.key_id,
                "subjects": dict(statement.subjects),
                "predicate": dict(statement.predicate),
            }
        )
        return
    out.text(f"{artifact} is verified: the key {statement.key_id[:16]} signed it")
    rows = [("sha256", sha256), *_rows(statement.predicate)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.text(f"{name:<{width}}  {value}")


def _rows(predicate: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a provenance says, in words. It is signed, but may be of another version: what it lacks is left out."""
    definition, details = _object(predicate, "buildDefinition"), _object(predicate, "runDetails")
    metadata, asked = _object(details, "metadata"), _object(definition, "externalParameters")
    yield from _row("job", metadata.get("invocationId"))
    yield from _row("compiled", metadata.get("finishedOn"))
    for material in _objects(definition, "resolvedDependencies"):
        digest = _object(material, "digest").get("sha256")
        if digest is not None:
            yield from _row(f"made from {_text(material.get('name'))}", f"sha256 {digest}")
    if _object(definition, "internalParameters").get("simulated"):
        yield "simulated", "by a simulated farm, which has no compiler: the artifact cannot be run"
    target = _object(asked, "target")
    yield from _row("target", " ".join(f"{name}={_text(target[name])}" for name in sorted(target)))
    yield from _row("precision", asked.get("precision"))
    versions = _object(_object(details, "builder"), "version")
    yield from _row("versions", ", ".join(f"{name} {_text(versions[name])}" for name in sorted(versions)))
    for device in _objects(_object(definition, "internalParameters"), "devices"):
        role = "checked on" if device.get("role") == "checked" else "records measured on"
        yield from _row(role, f"{_text(device.get('device_model'))} ({_text(device.get('id'))})")


def _row(name: str, value: object) -> Iterator[tuple[str, str]]:
    if value not in (None, ""):
        yield _text(name), _text(value)


def _text(value: object) -> str:
    return clean(str(value), _MOST_TEXT)


def _object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _objects(parent: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    value = parent.get(name)
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()

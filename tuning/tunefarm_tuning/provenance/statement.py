"""Statements (in-toto, v1): what a signed payload says, about which files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.provenance.envelope import SignedPayload

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
"""The predicate of an artifact."""
BACKUP = "urn:tunefarm:backup:v1"
"""The predicate of a backup."""
COMPILE = "urn:tunefarm:compile:v1"
"""The provenance's ``buildType``."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement whose signature was checked.

    Attributes:
        subjects: The SHA-256 of each file that it is about, by name.
        predicate: What it says of them.
        key_id: The public key that verified it.
    """

    subjects: Mapping[str, str]
    predicate: Mapping[str, Any]
    key_id: str


def read_statement(signed: SignedPayload, *, predicate_type: str, named: str) -> Statement:
    """Return the statement of a payload.

    Args:
        signed: The payload.
        predicate_type: `PROVENANCE` or `BACKUP`: a statement of another kind is refused, though the same key signed it.
        named: What errors call the envelope.

    Raises:
        InvalidInputError: ``bad-envelope`` if it is none; ``wrong-predicate`` if it states something else.
    """
    try:
        document = json.loads(signed.payload)
        types = (document["_type"], document["predicateType"])
        predicate = document["predicate"]
        subjects = {str(subject["name"]): subject["digest"]["sha256"] for subject in document["subject"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(
            f"{named} is signed, but holds no statement of in-toto", code="bad-envelope"
        ) from error
    if types != (STATEMENT_TYPE, predicate_type):
        raise _wrong(named, f"{types[1]!r:.200}", predicate_type)
    if not isinstance(predicate, dict) or not all(
        isinstance(sha256, str) and _SHA256.fullmatch(sha256) for sha256 in subjects.values()
    ):
        raise InvalidInputError(
            f"{named} is signed, but its statement has no predicate, or a subject without SHA-256",
            code="bad-envelope",
        )
    if predicate_type == PROVENANCE:
        definition = predicate.get("buildDefinition")
        kind = definition.get("buildType") if isinstance(definition, dict) else None
        if kind != COMPILE:
            raise _wrong(named, f"a build {kind!r:.200}", COMPILE)
    return Statement(subjects=subjects, predicate=predicate, key_id=signed.key_id)


def _wrong(named: str, stated: str, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"{named} is signed, but states {stated.encode('ascii', 'replace').decode()}, not {wanted}: it is of something "
        "else, or of a newer version of tunefarm",
        code="wrong-predicate",
    )

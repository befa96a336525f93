"""Forged artifacts: whoever has a farm's public key loads nothing that the farm did not compile."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from intruder import Intruder
from json_mutations import mutated
from signed_farm import finished_job, payload_of, public_path, resigned, saved, signing_farm, with_payload

from tunefarm_app.identity.signing import SigningKey, create_signing_key, rotate_signing_key
from tunefarm_db.tables import ArtifactRow, table_of
from tunefarm_tuning.artifact.loader import ArtifactError, load
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.provenance.statement import PROVENANCE
from tunefarm_tuning.provenance.verification import verified


@pytest.fixture(scope="module")
def farm_and_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Farm, Path]]:
    farm, key = signing_farm(tmp_path_factory.mktemp("farm"))
    yield farm, key
    farm.services.close()


@pytest.fixture(scope="module")
def jobs(farm_and_key: tuple[Farm, Path]) -> Any:
    farm, _ = farm_and_key
    return finished_job(farm), finished_job(farm, "other.onnx", seed=2)


@pytest.fixture
def signed(farm_and_key: tuple[Farm, Path], jobs: Any, tmp_path: Path) -> tuple[Path, Path, Path]:
    """An artifact, its envelope and the file of the farm's public keys."""
    farm, key = farm_and_key
    return *saved(farm, jobs[0], tmp_path / "one"), public_path(key)


def code_of(artifact: Path, keys: Path) -> str:
    """Return why an artifact is refused, by the loader, which unpacks nothing of it."""
    with pytest.raises(ArtifactError) as refused:
        load(artifact, verify_key=keys)
    with pytest.raises(InvalidInputError) as same, verified(artifact, keys):
        pass
    assert refused.value.code == same.value.code
    assert "\n" not in refused.value.message
    return refused.value.code


def test_what_the_farm_compiled_is_verified(signed: tuple[Path, Path, Path]) -> None:
    artifact, _, keys = signed
    with verified(artifact, keys) as checked:
        assert checked.file.read() == artifact.read_bytes()
        assert checked.sha256 == hashlib.sha256(artifact.read_bytes()).hexdigest()


def test_a_forged_artifact(signed: tuple[Path, Path, Path]) -> None:
    """One bit of the code is another one."""
    artifact, _, keys = signed
    data = bytearray(artifact.read_bytes())
    data[len(data) // 2] ^= 1
    artifact.write_bytes(data)
    assert code_of(artifact, keys) == "wrong-subject"


def test_the_envelope_of_another_artifact(
    farm_and_key: tuple[Farm, Path], jobs: Any, signed: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    artifact, beside, keys = signed
    _, others = saved(farm_and_key[0], jobs[1], tmp_path / "other")
    beside.write_bytes(others.read_bytes())
    assert code_of(artifact, keys) == "wrong-subject"


def test_no_envelope(signed: tuple[Path, Path, Path]) -> None:
    artifact, beside, keys = signed
    beside.unlink()
    assert code_of(artifact, keys) == "no-envelope"


def test_a_key_of_the_attackers_own(signed: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """The statement is right in every word, also in the key that it says it is of."""
    artifact, beside, keys = signed
    own = tmp_path / "own.pem"
    create_signing_key(own)
    honest = beside.read_text()
    beside.write_text(resigned(honest, own, lambda _: None))
    assert code_of(artifact, keys) == "unknown-key"
    pretending = json.loads(beside.read_text())
    pretending["signatures"][0]["keyid"] = json.loads(honest)["signatures"][0]["keyid"]
    beside.write_text(json.dumps(pretending))
    assert code_of(artifact, keys) == "bad-signature"
    both = json.loads(honest)
    both["payload"] = pretending["payload"]
    both["signatures"] = [{**both["signatures"][0], "keyid": ""}, *pretending["signatures"]]
    beside.write_text(json.dumps(both))
    assert code_of(artifact, keys) == "bad-signature"


@pytest.mark.parametrize(
    "change",
    [
        lambda statement: statement["subject"][0]["digest"].update(sha256="0" * 64),
        lambda statement: statement["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}}),
        lambda statement: statement["predicate"]["buildDefinition"]["externalParameters"].update(model="m"),
    ],
)
def test_an_altered_payload(signed: tuple[Path, Path, Path], change: Callable[[Any], None]) -> None:
    artifact, beside, keys = signed
    beside.write_text(with_payload(beside.read_text(), change))
    assert code_of(artifact, keys) == "bad-signature"


@pytest.mark.parametrize(
    "change",
    [
        lambda statement: statement.update(predicateType="https://in-toto.io/attestation/vulns"),
        lambda statement: statement.update(predicateType="urn:tunefarm:backup:v1"),
        lambda statement: statement.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda statement: statement["predicate"]["buildDefinition"].update(buildType="urn:else"),
        lambda statement: statement["predicate"].update(buildDefinition=None),
    ],
)
def test_something_else_that_the_same_key_signed(
    farm_and_key: tuple[Farm, Path], signed: tuple[Path, Path, Path], change: Callable[[Any], None]
) -> None:
    artifact, beside, keys = signed
    beside.write_text(resigned(beside.read_text(), farm_and_key[1], change))
    assert code_of(artifact, keys) == "wrong-predicate"


def test_an_old_key(tmp_path: Path) -> None:
    """After a rotation, former results verify with the list of all keys, and not where the former key is no longer trusted."""
    farm, key = signing_farm(tmp_path)
    before, _ = saved(farm, finished_job(farm), tmp_path / "before")
    rotate_signing_key(key)
    after, _ = saved(farm, finished_job(farm, "later.onnx", seed=3), tmp_path / "after")
    farm.services.close()
    all_keys = public_path(key)
    for artifact in (before, after):
        with verified(artifact, all_keys):
            pass
    new_alone, old_alone = tmp_path / "new.pub", tmp_path / "old.pub"
    end = "-----END PUBLIC KEY-----\n"
    new, old = (part + end for part in all_keys.read_text().split(end)[:2])
    new_alone.write_text(new)
    old_alone.write_text(old)
    assert code_of(before, new_alone) == "unknown-key"
    assert code_of(after, old_alone) == "unknown-key"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHqT2nI",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"\xff" * 100,
        b"x" * (2 << 20),
        None,
    ],
)
def test_a_key_file_that_is_none(
    signed: tuple[Path, Path, Path], tmp_path: Path, content: bytes | None
) -> None:
    keys = tmp_path / "keys"
    if content is not None:
        keys.write_bytes(content)
    assert code_of(signed[0], keys) == "bad-verify-key"


def test_the_private_key_is_no_key_to_verify_with(
    farm_and_key: tuple[Farm, Path], signed: tuple[Path, Path, Path]
) -> None:
    with pytest.raises(ArtifactError, match="holds a private key") as refused:
        load(signed[0], verify_key=farm_and_key[1])
    assert refused.value.code == "bad-verify-key"


MALFORMED = {"bad-envelope", "bad-signature", "unknown-key", "wrong-predicate", "wrong-subject"}


@given(data=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_malformed_envelopes(signed: tuple[Path, Path, Path], data: st.DataObject) -> None:
    """Whatever an envelope is changed to, it is refused with a code of its own, or says what it said before."""
    artifact, beside, keys = signed
    text = beside.read_text()
    document = json.loads(text)
    changed = data.draw(
        st.one_of(
            mutated(document, "payload", "payloadType", "signatures", "keyid", "sig").map(json.dumps),
            st.binary(max_size=200).map(lambda junk: junk.decode("latin-1")),
            st.integers(0, len(text) - 1).map(lambda end: text[:end]),
            st.just("[" * 100_000),
        )
    )
    beside.write_text(changed, encoding="utf-8", errors="surrogatepass")
    try:
        with verified(artifact, keys) as checked:
            assert dict(checked.statement.predicate) == payload_of(text)["predicate"]
    except InvalidInputError as error:
        assert error.code in MALFORMED, error  # noqa: PT017
    finally:
        beside.write_text(text)


@pytest.mark.exhaustive
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_malformed_statements_that_are_signed(
    farm_and_key: tuple[Farm, Path], signed: tuple[Path, Path, Path], data: st.DataObject
) -> None:
    """Not even the farm's key makes the loader stumble."""
    artifact, beside, keys = signed
    text = beside.read_text()
    statement = data.draw(mutated(payload_of(text), "subject", "digest", "sha256", "predicateType", "_type"))
    beside.write_text(SigningKey.read(farm_and_key[1]).sign(json.dumps(statement).encode()))
    try:
        with verified(artifact, keys) as checked:
            assert statement["predicateType"] == PROVENANCE
            assert checked.sha256 in checked.statement.subjects.values()
    except InvalidInputError as error:
        assert error.code in MALFORMED  # noqa: PT017
    finally:
        beside.write_text(text)


def test_the_bytes_that_were_verified_are_those_that_are_read(signed: tuple[Path, Path, Path]) -> None:
    """Somebody overwrites the file in place and replaces it, again and again, from the moment of the check on."""
    artifact, _, keys = signed
    honest, stop = artifact.read_bytes(), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            descriptor = os.open(artifact, os.O_WRONLY)
            os.pwrite(descriptor, b"\xff" * len(honest), 0)
            os.pwrite(descriptor, honest, 0)
            os.close(descriptor)

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        for _ in range(200):
            try:
                with verified(artifact, keys) as checked:
                    assert checked.file.read() == honest
                    outcomes.add("verified")
            except InvalidInputError as error:
                outcomes.add(error.code)
    finally:
        stop.set()
        thread.join()
    assert outcomes <= {"verified", "wrong-subject"}


def test_the_store_and_the_database_cannot_be_edited_afterwards(tmp_path: Path) -> None:
    """Whoever may write both puts another artifact in its place: the server sends it, and it does not verify."""
    farm, key = signing_farm(tmp_path)
    job = finished_job(farm)
    evil = farm.services.blobs.put([b"evil code"])
    with farm.services.uow.write() as repos:
        repos.blobs.add(evil.sha256, size_bytes=evil.size_bytes, media_type="x")
    with farm.services.uow.engine.begin() as connection:
        connection.execute(table_of(ArtifactRow).update().values(sha256=evil.sha256))
    artifact, _ = saved(farm, job, tmp_path / "download")
    farm.services.close()
    assert artifact.read_bytes() == b"evil code"
    assert code_of(artifact, public_path(key)) == "wrong-subject"


def test_a_child_cannot_open_the_signing_key(intruder: Intruder, tmp_path: Path) -> None:
    key = tmp_path / "signing" / "key.pem"
    create_signing_key(key)
    intruder.aim(key=str(key))
    done = intruder.run(lambda: import_model(intruder.blob))
    assert "read the key file" not in done
    assert done == {}
    assert key.stat().st_mode & 0o777 == 0o600

"""A forged backup, or an old one: it plants no key and revives none."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm
from mutants.watch import Watch
from pyrage import x25519
from signed_farm import finished_job, public_path, signing_farm

from tunefarm_app.access.api_keys import create_api_key, verify_api_key
from tunefarm_app.access.browser_sessions import start_session
from tunefarm_app.devices.enrolment import create_enrolment_token
from tunefarm_app.identity.signing import SigningKey, create_signing_key
from tunefarm_app.identity.statements import backup_statement
from tunefarm_app.operations.backup import DATABASE, ENVELOPE, MANIFEST, back_up, check_backup, restore
from tunefarm_app.operations.encryption import MAGIC, encrypting
from tunefarm_tuning.core.errors import InvalidInputError

Change = Callable[[str, bytes], bytes | None]


@pytest.fixture
def farm_and_key(tmp_path: Path) -> Iterator[tuple[Farm, Path]]:
    (tmp_path / "source").mkdir()
    farm, key = signing_farm(tmp_path / "source")
    finished_job(farm)
    yield farm, key
    farm.services.close()


@pytest.fixture
def twin(farm_and_key: tuple[Farm, Path], tmp_path: Path) -> Iterator[Farm]:
    twin = farm_and_key[0].empty_twin(tmp_path)
    yield twin
    twin.services.close()


def backup_of(farm: Farm, path: Path, key: Path | None) -> Path:
    url = farm.services.settings.database_url.get_secret_value()
    back_up(url, farm.services.blobs, path, key=None if key is None else SigningKey.read(key))
    return path


def into(twin: Farm, path: Path, **options: Any) -> None:
    url = twin.services.settings.database_url.get_secret_value()
    restore(path, database_url=url, store=twin.services.blobs, replace=True, **options)


def rewritten(path: Path, change: Change, *more: tuple[str, bytes]) -> None:
    with tarfile.open(path) as archive:
        members = [(entry.name, archive.extractfile(entry).read()) for entry in archive]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as archive:
        for name, data in [*((n, change(n, d)) for n, d in members), *more]:
            if data is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def planted_key(data: bytes) -> tuple[bytes, str]:
    """Return the database's file with one more API key, all of whose rows are right, and the key's text."""
    secret = "s" * 43
    lines = gzip.decompress(data).decode().splitlines()
    where = next(number for number, line in enumerate(lines) if line.startswith('{"table":"api_keys"'))
    columns = json.loads(lines[where])["columns"]
    row = dict.fromkeys(columns) | {
        "id": "e" * 16, "name": "planted", "scopes": ["admin"], "created_at": 1.0, "limits": {},
        "secret_sha256": hashlib.sha256(secret.encode()).hexdigest(),
    }  # fmt: skip
    lines.insert(where + 1, json.dumps([row[column] for column in columns]))
    lines[-1] = json.dumps({"rows": json.loads(lines[-1])["rows"] + 1})
    return gzip.compress(("\n".join(lines) + "\n").encode()), f"tfk_{'e' * 16}_{secret}"


def test_a_backup_that_the_farm_signed(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    assert check_backup(path, key_file=public_path(key)) == check_backup(path)
    into(twin, path, key_file=public_path(key))
    with twin.services.uow.read() as repos:
        assert len(repos.models.list().items) == 1


def test_a_forged_backup_plants_a_key(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    planted = ""

    def plant(name: str, data: bytes) -> bytes:
        nonlocal planted
        if name == DATABASE:
            data, planted = planted_key(data)
        return data

    rewritten(path, plant)
    with pytest.raises(InvalidInputError, match="another backup") as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "wrong-subject"
    into(twin, path)  # nobody asked who made it: the key is there, and of no use
    assert verify_api_key(twin.services, planted) is None
    into(twin, path, keep_keys=True)
    assert verify_api_key(twin.services, planted) is not None, "it is a key, if one insists"


def test_an_old_backup_revives_no_key(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path) -> None:
    """Nor the credential of a device, an enrolment's token or the session of a browser."""
    farm, key = farm_and_key
    services = farm.services
    admin = create_api_key(services, name="admin")[1]
    device = create_api_key(services, name="device", scopes=["device"])[1]
    token = create_enrolment_token(services, device_name="board", valid_sec=3600.0)[1]
    session = start_session(services, admin)
    assert session is not None
    path = backup_of(farm, tmp_path / "b.tar", key)
    into(twin, path, key_file=public_path(key))
    assert [verify_api_key(twin.services, text) for text in (admin, device, token, session)] == [None] * 4
    with twin.services.uow.write() as repos:
        assert {entry.details["keys_kept"] for entry in restored_entries(repos)} == {False}
    into(twin, path, key_file=public_path(key), keep_keys=True)
    assert verify_api_key(twin.services, admin) is not None
    assert verify_api_key(twin.services, device) is not None


def restored_entries(repos: Any) -> list[Any]:
    repos.audit.seal()
    return [entry for entry in repos.audit.page(limit=50).items if entry.action == "restored"]


@pytest.mark.parametrize("missing", ["unsigned", "cut out"])
def test_nobody_signed_it(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path, missing: str) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", None if missing == "unsigned" else key)
    rewritten(path, lambda name, data: None if name == ENVELOPE else data)
    with pytest.raises(InvalidInputError) as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "no-envelope"


def test_another_farm_signed_it(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path) -> None:
    farm, key = farm_and_key
    create_signing_key(tmp_path / "other.pem")
    path = backup_of(farm, tmp_path / "b.tar", tmp_path / "other.pem")
    with pytest.raises(InvalidInputError) as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "unknown-key"


def test_an_artifacts_envelope_is_no_backups(
    farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path
) -> None:
    farm, key = farm_and_key
    with farm.services.uow.read() as repos:
        envelope = next(
            artifact.envelope
            for job in repos.jobs.list().items
            if (artifact := repos.artifacts.for_job(job.id))
        )
    assert envelope is not None
    path = backup_of(farm, tmp_path / "b.tar", key)
    rewritten(path, lambda name, data: envelope.encode() if name == ENVELOPE else data)
    with pytest.raises(InvalidInputError) as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "wrong-predicate"


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", [MANIFEST, DATABASE, "store/"])
def test_one_part_is_replaced(farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path, name: str) -> None:
    """Also by a second member of the same name, which tar allows."""
    farm, key = farm_and_key
    earlier = backup_of(farm, tmp_path / "earlier.tar", key)
    farm.upload(b"\x08\x07" + b"another model" * 10)
    path = backup_of(farm, tmp_path / "b.tar", key)
    with tarfile.open(earlier) as archive:
        member = next(entry for entry in archive if entry.name.startswith(name))
        other = archive.extractfile(member).read()  # type: ignore[union-attr]
    data = b"evil code" if name == "store/" else other
    rewritten(path, lambda _name, data: data, (member.name, data))
    with pytest.raises(InvalidInputError) as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == ("bad-backup" if name == "store/" else "wrong-subject")


def test_a_backup_that_changes_while_it_is_restored(
    farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's part is overwritten in place after the check: nothing of it is committed."""
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    with tarfile.open(path) as archive:
        member = archive.getmember(DATABASE)
        honest = archive.extractfile(member).read()  # type: ignore[union-attr]
    forged = gzip.compress(gzip.decompress(honest).replace(b"net.onnx", b"bad.onnx"), 9)
    forged += b"\0" * (len(honest) - len(forged))  # gzip takes zeros at its end
    if len(forged) != len(honest):
        pytest.skip("the forged database does not fit in the honest one's place")
    store_put = twin.services.blobs.put

    def swap(chunks: Any, **options: Any) -> Any:
        with path.open("r+b") as file:
            file.seek(member.offset_data)
            file.write(forged)
        return store_put(chunks, **options)

    monkeypatch.setattr(twin.services.blobs, "put", swap)
    with pytest.raises(InvalidInputError, match="changed while") as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "bad-backup"
    with twin.services.uow.read() as repos:
        assert repos.models.list().items == ()


def test_a_statement_about_other_files_of_the_same_farm(
    farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path
) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    statement = backup_statement({MANIFEST: "0" * 64}, 1.0)
    envelope = SigningKey.read(key).sign(statement).encode()
    rewritten(path, lambda name, data: envelope if name == ENVELOPE else data)
    with pytest.raises(InvalidInputError) as refused:
        into(twin, path, key_file=public_path(key))
    assert refused.value.code == "wrong-subject"


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (MANIFEST, tarfile.SYMTYPE),
        (DATABASE, tarfile.SYMTYPE),
        (ENVELOPE, tarfile.LNKTYPE),
        (DATABASE, tarfile.FIFOTYPE),
        (ENVELOPE, tarfile.DIRTYPE),
    ],
)
def test_a_member_that_is_no_plain_file(
    farm_and_key: tuple[Farm, Path], tmp_path: Path, name: str, kind: bytes
) -> None:
    """A link to itself, for example, ended in a RecursionError."""
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    link = tarfile.TarInfo(name)
    link.type, link.linkname = kind, name
    with tarfile.open(path) as archive, tarfile.open(tmp_path / "forged.tar", "w") as forged:
        for entry in archive:
            if entry.name == name:
                forged.addfile(link)
            else:
                forged.addfile(entry, archive.extractfile(entry))
    for key_file in (None, public_path(key)):
        if key_file is None and name == ENVELOPE:
            continue  # nobody asks for it
        with pytest.raises(InvalidInputError) as refused:
            check_backup(tmp_path / "forged.tar", key_file=key_file)
        assert refused.value.code == "bad-backup"


@pytest.mark.parametrize("manifest", [b"[" * 200_000, b'{"format": 1, "blobs": [1], "missing": []}'])
def test_a_manifest_that_is_none(farm_and_key: tuple[Farm, Path], tmp_path: Path, manifest: bytes) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    rewritten(path, lambda name, data: manifest if name == MANIFEST else data)
    for key_file, code in ((None, "bad-backup"), (public_path(key), "wrong-subject")):
        with pytest.raises(InvalidInputError) as refused:
            check_backup(path, key_file=key_file)
        assert refused.value.code == code


def test_nothing_is_unpacked_before_it_is_verified(
    farm_and_key: tuple[Farm, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm, key = farm_and_key
    path = backup_of(farm, tmp_path / "b.tar", key)
    rewritten(path, lambda name, data: gzip.compress(b"\0" * (1 << 20)) if name == DATABASE else data)
    unpacked: list[object] = []
    monkeypatch.setattr("tunefarm_app.operations.backup._lines_counted", unpacked.append)
    with pytest.raises(InvalidInputError) as refused:
        check_backup(path, key_file=public_path(key))
    assert (refused.value.code, unpacked) == ("wrong-subject", [])


def test_who_carries_an_encrypted_backup_reads_nothing(
    farm_and_key: tuple[Farm, Path], tmp_path: Path
) -> None:
    """Neither a name nor a hash; and no plain file is written to where the backup goes, or left in the store."""
    farm, key = farm_and_key
    folder = tmp_path / "mounted"
    folder.mkdir()
    secret = x25519.Identity.generate()
    url = farm.services.settings.database_url.get_secret_value()
    path = folder / "backup"
    watched = Watch({folder: "backup"})
    with watched:
        recipients = [secret.to_public()]
        back_up(url, farm.services.blobs, path, key=SigningKey.read(key), recipients=recipients)
        names = {event.split("/")[-1] for event in watched.events()}
    assert all(
        name == "backup" or re.fullmatch(r"\.tunefarm-backup-[0-9a-f]{16}\.part", name) for name in names
    )
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    for word in (b"manifest", b"store/", b"net.onnx", b"tunefarm"):
        assert word not in data
    assert list((farm.services.settings.store_dir / "tmp").iterdir()) == []


def test_an_encrypted_backup_is_verified_and_restored(
    farm_and_key: tuple[Farm, Path], twin: Farm, tmp_path: Path
) -> None:
    farm, key = farm_and_key
    secret = x25519.Identity.generate()
    identity = tmp_path / "identity"
    identity.write_text(str(secret))
    identity.chmod(0o600)
    url, path = farm.services.settings.database_url.get_secret_value(), tmp_path / "backup"
    recipients = [secret.to_public()]
    backup = back_up(url, farm.services.blobs, path, key=SigningKey.read(key), recipients=recipients)
    assert check_backup(path, key_file=public_path(key), identity=identity) == backup
    for options, code in (({}, "backup-encrypted"), ({"identity": key}, "bad-identity")):
        with pytest.raises(InvalidInputError) as caught:
            into(twin, path, **options)
        assert caught.value.code == code
    into(twin, path, identity=identity, key_file=public_path(key))
    # Anybody can encrypt for a public key: the signature says who did.
    plain, forged = backup_of(farm, tmp_path / "plain", None), tmp_path / "forged"
    with forged.open("wb") as file, encrypting(file, recipients) as target:
        target.write(plain.read_bytes())
    with pytest.raises(InvalidInputError) as caught:
        into(twin, forged, identity=identity, key_file=public_path(key))
    assert caught.value.code == "no-envelope"

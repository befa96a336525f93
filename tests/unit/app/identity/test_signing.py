"""The farm's signing key: written once, replaced without losing what was signed, and never half written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tunefarm_app.identity.signing import (
    SigningKey,
    create_signing_key,
    ensure_signing_key,
    farm_keys,
    public_keys,
    public_path,
    rotate_signing_key,
)
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError
from tunefarm_tuning.provenance.envelope import open_envelope, read_public_keys


def test_create(tmp_path: Path) -> None:
    key = tmp_path / "signing" / "key.pem"
    key_id = create_signing_key(key)
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    assert [public.id for public in public_keys(key)] == [key_id] == [SigningKey.read(key).id]
    assert "PRIVATE" not in public_path(key).read_text()
    before = key.read_bytes()
    with pytest.raises(ConflictError) as refused:
        create_signing_key(key)
    assert refused.value.code == "signing-key-exists"
    assert key.read_bytes() == before


def test_processes_that_start_at_once_make_one_key(tmp_path: Path) -> None:
    key_ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: key_ids.append(ensure_signing_key(tmp_path / "k"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(key_ids) == 8
    assert len(set(key_ids)) == 1
    assert len(public_keys(tmp_path / "k")) == 1


def test_a_lost_file_of_public_keys_is_made_again(tmp_path: Path) -> None:
    key_id = ensure_signing_key(tmp_path / "k")
    public_path(tmp_path / "k").unlink()
    assert ensure_signing_key(tmp_path / "k") == key_id
    assert [public.id for public in public_keys(tmp_path / "k")] == [key_id]


def test_rotation_keeps_former_public_keys(tmp_path: Path) -> None:
    key = tmp_path / "k"
    first = create_signing_key(key)
    envelope = SigningKey.read(key).sign(b"signed before").encode()
    second, third = rotate_signing_key(key), rotate_signing_key(key)
    assert [public.id for public in public_keys(key)] == [third, second, first]
    assert SigningKey.read(key).id == third
    keys = read_public_keys(public_path(key))
    assert open_envelope(envelope, keys, named="e", keys_named="k").key_id == first


def test_the_api_needs_the_public_keys_alone(tmp_path: Path) -> None:
    key = tmp_path / "k"
    key_id = create_signing_key(key)
    key.unlink()
    assert [public.id for public in farm_keys(key)] == [key_id]
    assert farm_keys(None) == ()
    public_path(key).unlink()
    with pytest.raises(TransientError) as failed:
        farm_keys(key)
    assert failed.value.code == "signing-keys-unavailable"


P256 = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2
OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMvdyHKcvjBeBSDZH2r
1RTwjmYSi9R/zpBnuQ4EiMnCqfMPWiZqB4QdbAd0E7oH50VpuZ1P087G
-----END PRIVATE KEY-----
"""


@pytest.mark.parametrize("content", [None, "", "nonsense", P256])
def test_a_file_that_is_no_key(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "k"
    if content is not None:
        path.write_text(content)
    for call in (SigningKey.read, rotate_signing_key):
        with pytest.raises(InvalidInputError, match="TUNEFARM_SIGNING_KEY") as refused:
            call(path)
        assert refused.value.code == "no-signing-key"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError) as refused:
        create_signing_key(tmp_path / "file" / "key.pem")
    assert refused.value.code == "no-signing-key"


@pytest.mark.parametrize("mode", [0o644, 0o602])
def test_a_key_that_every_user_can_read_or_replace(tmp_path: Path, mode: int) -> None:
    key = tmp_path / "k"
    create_signing_key(key)
    key.chmod(mode)
    for call in (SigningKey.read, ensure_signing_key, rotate_signing_key):
        with pytest.raises(InvalidInputError, match="chmod 600") as refused:
            call(key)
        assert refused.value.code == "no-signing-key"
    key.chmod(0o640)
    assert SigningKey.read(key).id == public_keys(key)[0].id


def test_a_key_that_is_not_listed_is_listed_before_it_is_used_or_replaced(tmp_path: Path) -> None:
    """Somebody brought another key, and not its file of public keys: what it signed must verify."""
    here, other = tmp_path / "k", tmp_path / "other"
    first, second = create_signing_key(here), create_signing_key(other)
    other.replace(here)
    assert ensure_signing_key(here) == second
    assert [public.id for public in public_keys(here)] == [second, first]
    third = create_signing_key(other)
    other.replace(here)
    fourth = rotate_signing_key(here)
    assert [public.id for public in public_keys(here)] == [fourth, third, second, first]


def test_rotation_after_the_public_keys_were_lost(tmp_path: Path) -> None:
    key = tmp_path / "k"
    first = create_signing_key(key)
    public_path(key).unlink()
    with pytest.raises(InvalidInputError, match="signing rotate FILE"):
        public_keys(key)
    second = rotate_signing_key(key)
    assert [public.id for public in public_keys(key)] == [second, first]


def test_a_new_key_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is on the disk as well before anything is signed: that is what a folder's fsync is for."""
    path = tmp_path / "signing.key"
    synced: list[tuple[str, bool]] = []

    def note(descriptor: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    create_signing_key(path)
    assert synced[-1] == (str(tmp_path), True)
    synced.clear()
    rotate_signing_key(path)
    assert synced[-1] == (str(tmp_path), True)


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Workers that name the file and those that name the link sign with the same key after a rotation."""
    key, link = tmp_path / "real" / "k", tmp_path / "k"
    create_signing_key(key)
    link.symlink_to(key)
    public_path(link).symlink_to(public_path(key))
    second = rotate_signing_key(link)
    assert link.is_symlink()
    assert SigningKey.read(key).id == second
    assert public_keys(key)[0].id == second


def test_text_in_another_encoding_beside_the_public_keys(tmp_path: Path) -> None:
    key = tmp_path / "k"
    first = create_signing_key(key)
    public_path(key).write_bytes("Schlüssel\n".encode("latin-1") + public_path(key).read_bytes())
    second = rotate_signing_key(key)
    assert [public.id for public in public_keys(key)] == [second, first]

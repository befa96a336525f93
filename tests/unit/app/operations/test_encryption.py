"""Encryption of backups: who can read them, and what is said to others."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from pyrage import encrypt, x25519

from tunefarm_app.operations.encryption import MAGIC, encrypting, opened, read_identities, read_recipients
from tunefarm_tuning.core.errors import InvalidInputError

PLAIN = os.urandom(300_000)


def key_file(path: Path) -> tuple[Path, str]:
    """Write a secret key; return its file and the public key."""
    key = x25519.Identity.generate()
    path.write_text(f"# public key: {key.to_public()}\n{key}\n")
    path.chmod(0o600)
    return path, str(key.to_public())


def ssh_key(path: Path) -> tuple[Path, str]:
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    return path, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def encrypted(path: Path, *recipients: str) -> Path:
    with path.open("wb") as file, encrypting(file, read_recipients(recipients)) as target:
        for begin in range(0, len(PLAIN), 7000):
            target.write(PLAIN[begin : begin + 7000])
    return path


@pytest.mark.parametrize("make", [key_file, ssh_key])
def test_a_key_reads_what_was_written_for_it(make, tmp_path: Path) -> None:
    identity, public = make(tmp_path / "key")
    path = encrypted(tmp_path / "backup", public)
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    assert PLAIN[1000:1032] not in data
    with opened(path, identity, tmp_path) as file:
        assert file.read() == PLAIN


def test_each_of_several_keys_reads_it_and_no_other(tmp_path: Path) -> None:
    (first, first_public), (second, second_public), (other, _) = (
        key_file(tmp_path / f"key{i}") for i in range(3)
    )
    keys = tmp_path / "recipients"
    keys.write_text(f"# people\n{first_public}\n\n{second_public}\n")
    path = encrypted(tmp_path / "backup", str(keys))
    for identity in (first, second):
        with opened(path, identity, tmp_path) as file:
            assert file.read() == PLAIN
    with pytest.raises(InvalidInputError) as caught, opened(path, other, tmp_path):
        pass
    assert caught.value.code == "wrong-identity"


def test_the_plain_file_has_no_name(tmp_path: Path) -> None:
    identity, public = key_file(tmp_path / "key")
    path = encrypted(tmp_path / "backup", public)
    folder = tmp_path / "folder"
    folder.mkdir()
    with opened(path, identity, folder) as file:
        assert list(folder.iterdir()) == []
        assert os.fstat(file.fileno()).st_mode & 0o077 == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 100, 70_000])
def test_a_file_that_is_cut_off_or_changed_is_refused_whole(cut: int, tmp_path: Path) -> None:
    identity, public = key_file(tmp_path / "key")
    data = encrypted(tmp_path / "backup", public).read_bytes()
    for damaged in (data[:-cut], data[:-cut] + bytes([data[-cut] ^ 1]) + data[len(data) - cut + 1 :]):
        (tmp_path / "damaged").write_bytes(damaged)
        with (
            pytest.raises(InvalidInputError) as caught,
            opened(tmp_path / "damaged", identity, tmp_path),
        ):
            pass
        assert caught.value.code == "wrong-identity"


def test_an_encrypted_file_without_a_key_and_a_plain_one_with_a_key(tmp_path: Path) -> None:
    identity, public = key_file(tmp_path / "key")
    path, plain = encrypted(tmp_path / "backup", public), tmp_path / "plain"
    plain.write_bytes(b"plain")
    for file, key, code in ((path, None, "backup-encrypted"), (plain, identity, "not-encrypted")):
        with pytest.raises(InvalidInputError) as caught, opened(file, key, tmp_path):
            pass
        assert caught.value.code == code
        assert "--identity" in caught.value.message
    with opened(plain, None, tmp_path) as unchanged:
        assert unchanged.read() == b"plain"


@pytest.mark.parametrize("text", ["age1nonsense", "ssh-ed25519 nonsense", "no-such-file"])
def test_what_is_no_public_key(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_recipients([text])
    assert caught.value.code == "bad-recipient"
    assert text in caught.value.message
    empty = tmp_path / "empty"
    empty.write_text("# nobody\n")
    with pytest.raises(InvalidInputError, match="has no public key"):
        read_recipients([str(empty)])


def test_a_secret_key_by_mistake_is_not_repeated(tmp_path: Path) -> None:
    secret = str(x25519.Identity.generate())
    for i, line in enumerate((secret, f"  {secret}", secret.lower(), f"identity: {secret}")):
        path = tmp_path / f"key{i}"
        path.write_text(line)
        for text in (line, str(path)):
            with pytest.raises(InvalidInputError, match="this is a secret key") as caught:
                read_recipients([text])
            assert secret not in caught.value.message.upper()


def test_no_recipient_of_a_long_file_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "recipients"
    path.write_text(f"{x25519.Identity.generate().to_public()}\n" * 2000)
    with pytest.raises(InvalidInputError, match="longer than the 65,536 bytes"):
        read_recipients([str(path)])


def test_an_armored_file_is_encrypted_as_well(tmp_path: Path) -> None:
    identity, public = key_file(tmp_path / "key")
    path = tmp_path / "backup"
    path.write_bytes(encrypt(PLAIN, [x25519.Recipient.from_str(public)], armored=True))
    with opened(path, identity, tmp_path) as file:
        assert file.read() == PLAIN
    with pytest.raises(InvalidInputError) as caught, opened(path, None, tmp_path):
        pass
    assert caught.value.code == "backup-encrypted"


def test_what_is_no_secret_key(tmp_path: Path) -> None:
    readable, _ = key_file(tmp_path / "readable")
    readable.chmod(0o644)
    for name, text in (("nonsense", "nonsense"), ("nothing", "# nothing\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    for name in ("readable", "nonsense", "nothing", "missing"):
        with pytest.raises(InvalidInputError) as caught:
            read_identities(tmp_path / name)
        assert caught.value.code == "bad-identity"
        assert name in caught.value.message


def test_a_full_disk_is_an_error_of_the_disk() -> None:
    class Full(io.RawIOBase):
        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

    recipient = read_recipients([str(x25519.Identity.generate().to_public())])
    with pytest.raises(OSError, match="No space left"), encrypting(Full(), recipient) as target:
        target.write(PLAIN)


def test_whatever_ends_the_encryption_is_told() -> None:
    class Broken(io.RawIOBase):
        def write(self, _data: object) -> int:
            raise ValueError("broken")

    recipient = read_recipients([str(x25519.Identity.generate().to_public())])
    with pytest.raises(OSError, match="broken"), encrypting(Broken(), recipient) as target:
        target.write(PLAIN)

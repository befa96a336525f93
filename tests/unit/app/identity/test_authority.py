"""The farm's authority: its files, and what it signs."""

from __future__ import annotations

import shutil
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tunefarm_app.identity.authority import Authority, ensure_authority, identity_in
from tunefarm_app.identity.tickets import TicketReader, TicketSigner
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.relay.key import RelayKey


def request(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    algorithm = hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None
    names = x509.SubjectAlternativeName([x509.DNSName("gateway.tunefarm.internal")])
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(names, critical=True)
    )
    return asked.sign(key, algorithm).public_bytes(serialization.Encoding.PEM).decode()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_farms_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    with ThreadPoolExecutor(4) as executor:
        authorities = list(executor.map(ensure_authority, [folder] * 4))
    assert len({authority.certificate for authority in authorities}) == 1
    before = files(folder)
    assert set(before) == {
        *("authority/lock", "authority/key.pem", "authority/certificate.pem"),
        *("gateway/key.pem", "gateway/certificate.pem", "gateway/authority.pem", "gateway/tickets.pem"),
        *("gateway/receipts.key", "worker/receipts.pem", "worker/authority.pem", "worker/tickets.key"),
    }
    ensure_authority(folder)
    assert files(folder) == before
    assert not [path for path in folder.iterdir() if path.is_file()], "the volumes are the folders in it"
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    private = [name for name, data in before.items() if b"PRIVATE" in data]
    assert sorted(private) == [
        *("authority/key.pem", "gateway/key.pem", "gateway/receipts.key"),
        "worker/tickets.key",
    ]


def test_what_is_lost_is_made_again(tmp_path: Path) -> None:
    before = ensure_authority(tmp_path)
    for name in (
        "gateway/certificate.pem",
        "gateway/tickets.pem",
        "worker/authority.pem",
        "worker/receipts.pem",
    ):
        (tmp_path / name).unlink()
    assert ensure_authority(tmp_path).certificate == before.certificate
    assert (tmp_path / "worker/authority.pem").read_text() == before.certificate
    issued = x509.load_pem_x509_certificate((tmp_path / "gateway/certificate.pem").read_bytes())
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(before.certificate.encode()))


def test_a_certificate_says_what_the_farm_says(tmp_path: Path) -> None:
    """Whatever name the request asks for."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.load_pem_x509_certificate(
        ensure_authority(tmp_path).certify_device(request(key), "dev_1/key").encode()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == ["tunefarm:device:dev_1/key"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.public_key() == key.public_key()
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert 86_400 <= lasts.total_seconds() < 87_000


def broken(text: str) -> str:
    """Return a request whose signature is another one's."""
    lines = text.splitlines()
    last = lines[-2]
    lines[-2] = last[:-6] + ("AAAA" if last[-6:-2] != "AAAA" else "BBBB") + last[-2:]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no request",
        "é",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        request(ed25519.Ed25519PrivateKey.generate()),
        request(ec.generate_private_key(ec.SECP521R1())),
        broken(request(ec.generate_private_key(ec.SECP256R1()))),
        request(ec.generate_private_key(ec.SECP256R1())) + " " * 9000,
    ],
)
def test_a_request_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    authority = ensure_authority(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        authority.certify_device(text, "dev_1/key")
    assert caught.value.code == "invalid-certificate-request"


@pytest.mark.parametrize(
    "lost", ["authority", "gateway", "gateway/key.pem", "gateway/certificate.pem", "worker"]
)
def test_what_was_lost_in_part_is_made_again_and_fits(tmp_path: Path, lost: str) -> None:
    ensure_authority(tmp_path)
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    authority = ensure_authority(tmp_path)
    x509.load_pem_x509_certificate(
        (tmp_path / "gateway/certificate.pem").read_bytes()
    ).verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "gateway/certificate.pem", tmp_path / "gateway/key.pem"
    )
    ticket = TicketSigner.read(tmp_path / "worker/tickets.key").sign("d", 1, RelayKey().public)
    assert TicketReader.read(tmp_path / "gateway/tickets.pem").ticket(ticket).fence == 1


def test_a_copy_of_the_keys_is_closed_to_others_again(tmp_path: Path) -> None:
    ensure_authority(tmp_path)
    keys = [tmp_path / "authority/key.pem", tmp_path / "worker/tickets.key"]
    for key in keys:
        key.chmod(0o644)
    ensure_authority(tmp_path)
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}


def test_a_key_that_is_none_is_named(tmp_path: Path) -> None:
    ensure_authority(tmp_path)
    (tmp_path / "worker/tickets.key").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        ensure_authority(tmp_path)
    assert caught.value.code == "no-authority"


def test_a_farm_without_its_key_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Authority.read(tmp_path)
    assert caught.value.code == "no-authority"
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        ensure_authority(tmp_path / "file")
    assert caught.value.code == "no-authority"


@pytest.mark.parametrize("names", [None, (), (("DNS", "tunefarm:device:x"),), (("URI", "other:x"),)])
def test_a_certificate_of_something_else_names_no_device(names: object) -> None:
    assert identity_in(names) is None

"""The farm's own certificate authority, and the files that each part of the farm knows the others by.

The API makes them at its first start, in a folder with a folder for each part: ``authority/`` is the API's alone, ``gateway/`` the
gateway's, ``worker/`` the workers'. Whoever mounts only its own cannot act as another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.output_file import write_durably
from tunefarm_tuning.process.tunnel import GATEWAY_NAME

DEVICE_DAYS = 1.0
"""How long a device's certificate is valid. Its agent asks for the next one long before."""

_FARM_DAYS = 3650.0
_SLACK = timedelta(minutes=5)
"""Clocks of devices may be behind."""
_DEVICE_URI = "tunefarm:device:"
_MOST_REQUEST_BYTES = 8192


def device_identity(device_id: str, rpc_key: str) -> str:
    """Return what one life of a device's agent is known by: whoever registers the device again takes it over."""
    return f"{device_id}/{rpc_key}"


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority, with its key. Only the API has it.

    Attributes:
        certificate: Its certificate, as PEM: what everybody checks the others' with.
    """

    certificate: str
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it from the farm's folder of keys.

        Raises:
            InvalidInputError: ``no-authority``.
        """
        try:
            key = serialization.load_pem_private_key(_key_path(folder).read_bytes(), None)
            certificate = _certificate_path(folder).read_text("ascii")
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"the farm's authority in {folder} cannot be read: {error}", code="no-authority"
            ) from error
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(certificate, key)

    def certify_device(self, request: str, identity: str, *, days: float = DEVICE_DAYS) -> str:
        """Return a certificate for whoever has the request's key, as PEM. Of the request, only the key counts.

        Args:
            request: A signing request (PKCS #10), as PEM.
            identity: As `device_identity`.
            days: How long it is valid.

        Raises:
            InvalidInputError: ``invalid-certificate-request``.
        """
        try:
            if len(request) > _MOST_REQUEST_BYTES:
                raise ValueError("it is too long")
            asked = x509.load_pem_x509_csr(request.encode())
            key = asked.public_key()
            if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
                raise ValueError("its key is not of the curve P-256")  # noqa: TRY004  (caught below)
            if not asked.is_signature_valid:
                raise ValueError("its signature is wrong")
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
            raise InvalidInputError(
                f"the certificate request cannot be used: {error}",
                code="invalid-certificate-request",
                field="certificate_request",
            ) from error
        name = x509.UniformResourceIdentifier(_DEVICE_URI + identity)
        return self._certify(key, name, ExtendedKeyUsageOID.CLIENT_AUTH, days)

    def certify_gateway(self, key: ec.EllipticCurvePublicKey) -> str:
        """Return the gateway's certificate, as PEM."""
        return self._certify(key, x509.DNSName(GATEWAY_NAME), ExtendedKeyUsageOID.SERVER_AUTH, _FARM_DAYS)

    def _certify(
        self,
        key: ec.EllipticCurvePublicKey,
        name: x509.GeneralName,
        usage: x509.ObjectIdentifier,
        days: float,
    ) -> str:
        authority = x509.load_pem_x509_certificate(self.certificate.encode())
        builder = (
            _builder(key, "tunefarm", days, is_authority=False)
            .issuer_name(authority.subject)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        return _pem(builder.sign(self._key, hashes.SHA256()))


def identity_in(names: object) -> str | None:
    """Return the device's identity in the subject's further names (as `ssl` shows them) of a checked certificate; None if it has none."""
    for pair in names if isinstance(names, tuple) else ():
        kind, value = pair
        if kind == "URI" and value.startswith(_DEVICE_URI):
            return str(value.removeprefix(_DEVICE_URI))
    return None


def thumbprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate's DER, as hexadecimal digits; the certificate is PEM."""
    return x509.load_pem_x509_certificate(certificate.encode()).fingerprint(hashes.SHA256()).hex()


def ensure_authority(folder: Path) -> Authority:
    """Make what is missing of the farm's files; return the authority. Several processes may start at once.

    Raises:
        InvalidInputError: ``no-authority``, if they cannot be written or read.
    """
    try:
        key_folder = _key_path(
            folder
        ).parent  # in a container `folder` itself is no volume, and cannot be written to
        for path in (folder, key_folder):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(key_folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _ensure(_key_path(folder), lambda: _private_pem(ec.generate_private_key(ec.SECP256R1())))
            _ensure(_certificate_path(folder), lambda: _self_signed(_key_path(folder)))
            authority = Authority.read(folder)
            _ensure_gateway(folder, authority)
        finally:
            os.close(lock)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"the farm's authority cannot be kept in {folder}: {error}", code="no-authority"
        ) from error
    return authority


def _ensure_gateway(folder: Path, authority: Authority) -> None:
    gateway, worker = folder / "gateway", folder / "worker"
    _ensure(worker / "tickets.key", lambda: _private_pem(ed25519.Ed25519PrivateKey.generate()))
    tickets = serialization.load_pem_private_key((worker / "tickets.key").read_bytes(), None)
    _ensure(gateway / "tickets.pem", lambda: _public_pem(tickets.public_key()), anew=True)
    _ensure(gateway / "receipts.key", lambda: _private_pem(ed25519.Ed25519PrivateKey.generate()))
    receipts = serialization.load_pem_private_key((gateway / "receipts.key").read_bytes(), None)
    _ensure(worker / "receipts.pem", lambda: _public_pem(receipts.public_key()), anew=True)
    for part in (gateway, worker):
        _ensure(part / "authority.pem", lambda: authority.certificate, anew=True)
    if not _is_whole(gateway, authority):
        (gateway / "certificate.pem").unlink(missing_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        _ensure(gateway / "key.pem", lambda: _private_pem(key), anew=True)
        _ensure(gateway / "certificate.pem", lambda: authority.certify_gateway(key.public_key()))


def _is_whole(gateway: Path, authority: Authority) -> bool:
    """Return whether the gateway has a key, and a certificate of it by this authority: a volume may have been lost."""
    try:
        key = serialization.load_pem_private_key((gateway / "key.pem").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((gateway / "certificate.pem").read_bytes())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return certificate.public_key() == key.public_key()


def _key_path(folder: Path) -> Path:
    return folder / "authority" / "key.pem"


def _certificate_path(folder: Path) -> Path:
    return folder / "authority" / "certificate.pem"


def _ensure(path: Path, make: Callable[[], str], *, anew: bool = False) -> None:
    """Write a file that only this user can read, whole or not at all: if it is missing, or with `anew` if it says something else."""
    if path.exists() and not (anew and path.read_text("ascii") != make()):
        with contextlib.suppress(PermissionError):  # of another user's it can be read, so that user meant it
            path.chmod(0o600)  # a copy of the folder may have lost it
        return
    path.parent.mkdir(exist_ok=True, mode=0o700)
    write_durably(path, make(), mode=0o600)


def _self_signed(key_path: Path) -> str:
    key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = _builder(key.public_key(), "tunefarm authority", _FARM_DAYS, is_authority=True)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.issuer_name(_name("tunefarm authority")).add_extension(usage, critical=True)
    return _pem(builder.sign(key, hashes.SHA256()))


def _builder(
    key: ec.EllipticCurvePublicKey, name: str, days: float, *, is_authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public_pem(key: object) -> str:
    assert isinstance(key, ed25519.Ed25519PublicKey)
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()

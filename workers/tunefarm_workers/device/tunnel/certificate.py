"""The key of one life of the agent, and the certificates that the farm gives out for it."""

from __future__ import annotations

import os
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tunefarm_tuning.process.tunnel import client_context

_AGAIN_SEC = 60.0


class DeviceKey:
    """A key that never leaves this process. Concurrency: any thread.

    Attributes:
        request: A request for a certificate of it (PKCS #10), as PEM.
    """

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        # The farm decides what the certificate says.
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tunefarm device")])
        request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(self._key, hashes.SHA256())
        self.request = request.public_bytes(serialization.Encoding.PEM).decode()

    def context(self, certificate: str, authority: str) -> ssl.SSLContext:
        """Return the TLS settings of a client with this key.

        Args:
            certificate: The certificate that the farm gave out for the request, as PEM.
            authority: That of the farm's authority.

        Raises:
            ssl.SSLError: If they cannot be read, or are another key's.
        """
        context = client_context(authority)
        key = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # `ssl` reads files alone. Sessions run as this user, so this one is in memory and has no name, where the system can do that.
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("certificate")
            path = f"/proc/self/fd/{descriptor}"
        else:
            descriptor, path = tempfile.mkstemp()
        try:
            os.write(descriptor, certificate.encode() + key)
            context.load_cert_chain(path)
        finally:
            os.close(descriptor)
            if not path.startswith("/proc/"):
                Path(path).unlink()
        return context


def renewal_at(certificate: str, clock: Callable[[], float] = time.time) -> float:
    """Return when to ask for the next certificate, by the system's clock: in the middle of what is left of this one.

    If nothing is left, not at once: this machine's clock may be wrong, and the farm's right.
    """
    ends = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc.timestamp()
    now = clock()
    return now + ((ends - now) / 2 if ends > now else _AGAIN_SEC)

"""Tickets: what a worker signs, the gateway reads; nothing else is one."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.tickets import BadTicketError, GatewayWay, TicketReader, TicketSigner
from tunefarm_tuning.core.errors import DeviceLostError, TransientError
from tunefarm_tuning.process.relay.key import RelayKey

KEY = ed25519.Ed25519PrivateKey.generate()
PUBLIC = RelayKey().public
SIGNER, READER = TicketSigner(KEY), TicketReader(KEY.public_key())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(claims: object, header: object = None) -> str:
    """Return a text with a good signature, of whatever claims."""
    head = encoded(json.dumps(header or {"alg": "EdDSA", "typ": "JWT"}, separators=(",", ":")).encode())
    text = f"{head}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(KEY.sign(text.encode()))}"


def test_what_was_signed_is_read() -> None:
    before = time.time()
    first, second = (READER.ticket(SIGNER.sign("dev_1/k", 7, PUBLIC, valid_sec=30.0)) for _ in range(2))
    assert (first.device, first.fence, first.key) == ("dev_1/k", 7, PUBLIC)
    assert before <= first.issued_at <= time.time()
    assert first.expires_at == pytest.approx(first.issued_at + 30.0)
    assert first.id != second.id


def bound(public: object) -> dict[str, object]:
    return {"cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": public}}}


GOOD = {"sub": "dev_1/k", "fence": 7, "jti": "x", "iat": 1.0, "exp": 2.0, **bound(PUBLIC)}


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "..",
        SIGNER.sign("d", 1, PUBLIC) + "A",
        SIGNER.sign("d", 1, PUBLIC)[:-3],
        TicketSigner(ed25519.Ed25519PrivateKey.generate()).sign("d", 1, PUBLIC),
        signed(GOOD, {"alg": "none"}),
        signed(GOOD, {"alg": "HS256", "typ": "JWT"}),
        signed({**GOOD, "fence": -1}),
        signed({**GOOD, "fence": 1 << 70}),
        signed({**GOOD, "exp": float("nan")}),
        signed({**GOOD, "exp": float("inf")}),
        signed({**GOOD, "iat": float("nan")}),
        signed({**GOOD, "exp": "soon"}),
        signed({"sub": "d"}),
        signed({name: value for name, value in GOOD.items() if name != "cnf"}),
        signed({**GOOD, "cnf": None}),
        signed({**GOOD, "cnf": {"jwk": []}}),
        signed({**GOOD, **bound(None)}),
        signed({**GOOD, **bound("")}),
        signed({**GOOD, **bound(PUBLIC[:-2])}),
        signed({**GOOD, **bound("é" * 43)}),
        signed([1]),
        signed({**GOOD, "more": "x" * 4000}),
    ],
)
def test_nothing_else_is_a_ticket(text: object) -> None:
    READER.ticket(signed(GOOD))
    with pytest.raises(BadTicketError):
        READER.ticket(text)


@given(st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_changes_no_ticket(position: int, byte: int) -> None:
    text = SIGNER.sign("dev_1/k", 7, PUBLIC)
    position %= len(text)
    changed = text[:position] + chr(byte) + text[position + 1 :]
    try:
        ticket = READER.ticket(changed)
    except BadTicketError:
        return
    assert ticket == READER.ticket(text), "the last character has bits that no byte has"


@given(st.text())
def test_a_text_is_no_ticket(text: str) -> None:
    with pytest.raises(BadTicketError):
        READER.ticket(text)


def test_who_lost_the_lease_gets_no_ticket(tmp_path: Path) -> None:
    held = {("dev_1", 7)}

    def check(device_id: str, fence: int) -> None:
        if (device_id, fence) not in held:
            raise DeviceLostError("lost")

    ensure_authority(tmp_path)
    way = GatewayWay(address="gateway:1", folder=tmp_path / "worker", check=check)
    assert "CERTIFICATE" in way.authority()
    reader = TicketReader.read(tmp_path / "gateway" / "tickets.pem")
    assert reader.ticket(way.ticket("dev_1", "dev_1/k", 7, PUBLIC)).fence == 7
    held.clear()
    with pytest.raises(DeviceLostError):
        way.ticket("dev_1", "dev_1/k", 7, PUBLIC)


def test_a_worker_without_its_key_says_so(tmp_path: Path) -> None:
    way = GatewayWay(address="gateway:1", folder=tmp_path, check=lambda *_: None)
    for ask in (way.authority, lambda: way.ticket("d", "d/k", 1, PUBLIC)):
        with pytest.raises(TransientError) as caught:
            ask()
        assert caught.value.code == "no-keys-here"

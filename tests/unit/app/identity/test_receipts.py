"""Receipts: a worker believes what the gateway signed for its own session, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.receipts import ReceiptReader, ReceiptSigner
from tunefarm_app.identity.tickets import TicketReader, TicketSigner, id_of
from tunefarm_app.identity.tokens import sign_token
from tunefarm_tuning.core.errors import DeviceLostError, TransientError
from tunefarm_tuning.measure.interfaces import SessionOrigin
from tunefarm_tuning.process.relay.key import RelayKey

KEY, TICKETS = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
SIGNER, READER = ReceiptSigner(KEY), ReceiptReader(KEY.public_key())
DEVICE, CERTIFICATE = "dev_1/k", "0f" * 32


def new_ticket(device: str = DEVICE) -> str:
    return TicketSigner(TICKETS).sign(device, 7, RelayKey().public)


def receipt_for(ticket: str, certificate: str = CERTIFICATE) -> str:
    return SIGNER.sign(TicketReader(TICKETS.public_key()).ticket(ticket), certificate)


TICKET = new_ticket()
CLAIMS: dict[str, Any] = {"sub": DEVICE, "jti": id_of(TICKET), "cnf": {"x5t#S256": CERTIFICATE}}


def test_a_receipt_says_by_which_certificate_a_session_was_opened() -> None:
    assert READER.origin(DEVICE, TICKET, receipt_for(TICKET)) == SessionOrigin(
        certificate_sha256=CERTIFICATE, ticket_jti=id_of(TICKET)
    )


@pytest.mark.parametrize(
    "receipt",
    [
        None,
        7,
        "",
        "None",
        receipt_for(new_ticket()),
        receipt_for(new_ticket("dev_2/k")),
        receipt_for(TICKET, "x" * 64),
        receipt_for(TICKET) + "A",
        TICKET,
        sign_token(TICKETS, CLAIMS),
        sign_token(KEY, {**CLAIMS, "sub": "dev_2/k"}),
        sign_token(KEY, {**CLAIMS, "cnf": {}}),
        sign_token(KEY, {**CLAIMS, "cnf": {"x5t#S256": 7}}),
        sign_token(KEY, {"cnf": CERTIFICATE}),
    ],
)
def test_nothing_else_is_one(receipt: object) -> None:
    with pytest.raises(DeviceLostError, match="no receipt of the farm's gateway"):
        READER.origin(DEVICE, TICKET, receipt)


@given(st.one_of(st.text(), st.integers(), st.dictionaries(st.text(), st.text())))
def test_whatever_a_child_says_is_refused_by_name(receipt: object) -> None:
    with pytest.raises(DeviceLostError):
        READER.origin(DEVICE, TICKET, receipt)


def test_a_receipt_for_a_ticket_is_no_ticket_and_the_keys_are_apart(tmp_path: Path) -> None:
    ensure_authority(tmp_path)
    signer = ReceiptSigner.read(tmp_path / "gateway/receipts.key")
    reader = ReceiptReader.read(tmp_path / "worker/receipts.pem")
    ticket = TicketSigner.read(tmp_path / "worker/tickets.key").sign(DEVICE, 7, RelayKey().public)
    read = TicketReader.read(tmp_path / "gateway/tickets.pem").ticket(ticket)
    assert reader.origin(DEVICE, ticket, signer.sign(read, CERTIFICATE)).ticket_jti == read.id
    own = sign_token(TicketSigner.read(tmp_path / "worker/tickets.key")._key, CLAIMS)
    with pytest.raises(DeviceLostError):
        reader.origin(DEVICE, ticket, own)


def test_a_worker_without_the_key_leaves_the_step_to_another(tmp_path: Path) -> None:
    with pytest.raises(TransientError) as caught:
        ReceiptReader.read(tmp_path / "receipts.pem")
    assert caught.value.code == "no-keys-here"

"""The relay's key: its proof holds for one ticket and one challenge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.process.relay.key import RelayKey, is_proof, is_public_key

KEY = RelayKey()
PROOF = KEY.prove("ticket", "challenge")


def test_a_proof_holds_for_its_key_ticket_and_challenge() -> None:
    assert is_public_key(KEY.public)
    assert is_proof(PROOF, KEY.public, "ticket", "challenge")
    assert not is_proof(PROOF, RelayKey().public, "ticket", "challenge")
    assert not is_proof(PROOF, KEY.public, "ticket2", "challenge")
    assert not is_proof(PROOF, KEY.public, "ticket", "challenge2")
    assert not is_proof(PROOF, "no key", "ticket", "challenge")


def test_what_ends_the_challenge_begins_no_ticket() -> None:
    proof = KEY.prove("b", "a")
    assert not is_proof(proof, KEY.public, "", "a\0b")
    assert not is_proof(proof, KEY.public, "ab", "")


@given(st.one_of(st.none(), st.integers(), st.lists(st.text()), st.text(), st.binary().map(repr)))
def test_nothing_else_is_a_proof(proof: object) -> None:
    assert not is_proof(proof, KEY.public, "ticket", "challenge")


@pytest.mark.parametrize("text", [None, 7, [], "", "é", "A" * 41, "A" * 46, "%" * 43])
def test_nothing_else_is_a_public_key(text: object) -> None:
    assert not is_public_key(text)

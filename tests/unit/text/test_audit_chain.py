"""The chain of hashes: what a check finds, and what only a head that was noted elsewhere tells."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_text.audit_chain import FIELDS, START, ChainBreak, ChainCheck, chained_hash, parse_head


def chain(count: int, *, who: str = "k1") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    previous = START
    for seq in range(1, count + 1):
        entry: dict[str, Any] = {
            "seq": seq,
            "at": 1.0 + seq,
            "actor": who,
            "via": "api",
            "address": "",
            "action": "key-created",
            "subject": None,
            "details": {"b": 1, "a": [2]},
        }
        previous = chained_hash(previous, entry)
        entries.append({**entry, "hash": previous})
    return entries


def checked(entries: list[dict[str, Any]], head: tuple[int, str] | None = None) -> ChainBreak | None:
    check = ChainCheck(head)
    for entry in entries:
        check.take(entry)
    return check.end()


def test_the_hash_never_changes() -> None:
    """Logs that exist must stay valid."""
    assert chain(1)[0]["hash"] == "7b0fe138c1cb774ccdb30f86d5e3bf25c986c7823b9010c4cdebe5f346bbdded"


def test_a_whole_chain() -> None:
    entries = chain(5)
    assert checked(entries) is None
    assert checked(entries, (3, entries[2]["hash"])) is None
    assert checked([]) is None


@pytest.mark.parametrize("field", [*FIELDS, "hash"])
def test_each_field_is_covered(field: str) -> None:
    entries = chain(5)
    entries[2] = {**entries[2], field: 17 if field == "seq" else "other"}
    broken = checked(entries)
    assert broken is not None
    assert broken.seq == 3


def test_an_entry_with_a_hash_of_its_own_breaks_the_next() -> None:
    entries = chain(5)
    entries[2] = {**entries[2], "actor": "k2"}
    entries[2]["hash"] = chained_hash(entries[1]["hash"], entries[2])
    broken = checked(entries)
    assert broken is not None
    assert (broken.seq, broken.reason) == (4, "the entry was changed, or the hash of the entry before it")


def test_missing_and_repeated_entries() -> None:
    entries = chain(5)
    assert checked([*entries[:2], *entries[3:]]) == ChainBreak(
        seq=3, reason="entry 3 is missing: 4 follows 2"
    )
    assert checked([*entries[:2], entries[1], *entries[2:]]) == ChainBreak(
        seq=3, reason="entry 2 occurs twice: 2 follows 2"
    )
    assert checked(entries[1:]) == ChainBreak(
        seq=1, reason="entry 1 is missing, and no entry says that this was pruned"
    )


def test_only_a_noted_head_tells_of_a_cut_off_end_and_of_a_log_written_anew() -> None:
    entries = chain(5)
    head = (5, entries[4]["hash"])
    assert checked(entries[:3]) is None
    assert checked(entries[:3], head) == ChainBreak(
        seq=4, reason="the log ends before entry 5, which it once had"
    )
    anew = chain(6, who="k2")
    assert checked(anew) is None
    broken = checked(anew, head)
    assert broken is not None
    assert broken.seq == 5


def test_an_entry_unlike_the_noted_head_is_not_the_last_right_one() -> None:
    entries = chain(3)
    check = ChainCheck((2, "f" * 64))
    assert [check.take(entry) for entry in entries] == [True, False, False]
    assert (check.seq, check.hash) == (1, entries[0]["hash"])


def test_a_part_is_checked_from_the_entry_before_it() -> None:
    entries = chain(5)

    def part(first: int, after: str) -> ChainBreak | None:
        check = ChainCheck((5, entries[4]["hash"]), after=(2, after))
        for entry in entries[first:]:
            check.take(entry)
        return check.end()

    assert part(2, entries[1]["hash"]) is None
    assert part(2, "f" * 64) == ChainBreak(
        seq=3, reason="the entry was changed, or the hash of the entry before it"
    )
    assert part(3, entries[1]["hash"]) == ChainBreak(seq=3, reason="entry 3 is missing: 4 follows 2")


def test_heads() -> None:
    assert parse_head(f" 12:{'ab' * 32} ") == (12, "ab" * 32)
    for text in (
        "",
        "12",
        ":" + "ab" * 32,
        "x:" + "ab" * 32,
        "12:abc",
        "12:" + "AB" * 32,
        "-1:" + "ab" * 32,
        "9" * 30 + ":" + "ab" * 32,
    ):
        assert parse_head(text) is None


def pruned_chain(count: int, to: int, *, stated: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what is left of a chain of so many entries, pruned up to one; a last entry says so."""
    entries = chain(count)
    details = {"to": to, "hash": entries[to - 1]["hash"], "count": to} if stated is None else stated
    statement = {**entries[-1], "seq": count + 1, "action": "audit-pruned", "details": details}
    entries.append({**statement, "hash": chained_hash(entries[-1]["hash"], statement)})
    return entries[to:]


def test_a_pruned_log_is_whole_if_it_says_what_is_gone() -> None:
    entries = pruned_chain(6, 3)
    check = ChainCheck((5, entries[1]["hash"]))
    assert all(check.take(entry) for entry in entries)
    assert (check.end(), check.pruned, check.seq) == (None, 3, 7)
    # What was pruned last may have been noted before.
    assert checked(entries, (3, entries[-1]["details"]["hash"])) is None


def test_pruned_twice() -> None:
    entries = pruned_chain(6, 3)
    head = entries[3]
    entry = {**head, "seq": 8, "details": {"to": 5, "hash": entries[1]["hash"]}}
    entries.append({**entry, "hash": chained_hash(head["hash"], entry)})
    assert checked(entries[2:]) is None
    assert checked(entries) is None


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"to": 2, "hash": "of 2"},
        {"to": 4, "hash": "of 4"},
        {"to": 3, "hash": START},
        {"to": "3", "hash": "of 3"},
        {"to": 3},
    ],
)
def test_a_statement_about_something_else_proves_nothing(stated: dict[str, Any]) -> None:
    hashes = {f"of {entry['seq']}": entry["hash"] for entry in chain(6)}
    if "hash" in stated:
        stated = {**stated, "hash": hashes.get(stated["hash"], stated["hash"])}
    broken = checked(pruned_chain(6, 3, stated=stated))
    assert broken == ChainBreak(
        seq=1, reason="entry 1 is missing, up to entry 3, and no entry says that this was pruned"
    )


def test_more_than_was_stated_is_missing() -> None:
    broken = checked(pruned_chain(6, 3)[1:])
    assert broken is not None
    assert (broken.seq, "up to entry 4" in broken.reason) == (1, True)


def test_a_pruned_log_is_checked_as_any_other() -> None:
    entries = pruned_chain(6, 3)
    changed = [entries[0], {**entries[1], "actor": "k2"}, *entries[2:]]
    assert checked(changed) == ChainBreak(
        seq=5, reason="the entry was changed, or the hash of the entry before it"
    )
    first = [{**entries[0], "actor": "k2"}, *entries[1:]]
    broken = checked(first)
    assert broken is not None
    assert broken.seq == 1, "the first entry does not follow from what was pruned"


def test_a_noted_head_that_was_pruned_is_told() -> None:
    entries = pruned_chain(6, 3)
    broken = checked(entries, (2, "ab" * 32))
    assert broken is not None
    assert "entry 2, which was noted, was pruned" in broken.reason
    assert checked(entries, (3, "ab" * 32)) is not None


def test_a_log_of_which_all_was_pruned_is_its_statement() -> None:
    (statement,) = pruned_chain(6, 6)
    check = ChainCheck()
    assert check.take(statement)
    assert (check.end(), check.pruned, check.seq) == (None, 6, 7)
    forged = {**statement, "details": {**statement["details"], "hash": START}}
    assert checked([forged]) is not None

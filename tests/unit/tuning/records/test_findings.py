from __future__ import annotations

import pytest

from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.workload import revisions

SETTING = {"target": "llvm", "device_model": "d", "toolchain": "c"}
FACTS = {"workload": "w", "config": [1, 2]}


def test_a_finding_of_an_earlier_compile_is_found_and_counted() -> None:
    first = Findings()
    first.within(**SETTING).note("kernel", FACTS, {"tuned_sec": [1.0]})
    assert first.within(**SETTING).find("kernel", FACTS) == {"tuned_sec": [1.0]}
    later = Findings(first.noted.get)
    assert later.within(**SETTING).find("kernel", FACTS) == {"tuned_sec": [1.0]}
    assert later.reused == {"kernel": 1}
    assert later.noted == {}


@pytest.mark.parametrize(
    ("kind", "facts", "setting"),
    [
        ("untuned", FACTS, SETTING),
        ("kernel", {**FACTS, "config": [1, 3]}, SETTING),
        ("kernel", FACTS, {**SETTING, "toolchain": "another"}),
        ("kernel", FACTS, {**SETTING, "device_model": "another"}),
    ],
)
def test_it_holds_for_nothing_else(kind: str, facts: dict[str, object], setting: dict[str, str]) -> None:
    first = Findings()
    first.within(**SETTING).note("kernel", FACTS, {"tuned_sec": [1.0]})
    later = Findings(first.noted.get)
    assert later.within(**setting).find(kind, facts) is None
    assert not later.reused


def test_it_does_not_outlive_a_change_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Findings()
    first.within(**SETTING).note("kernel", FACTS, {"tuned_sec": [1.0]})
    monkeypatch.setattr(revisions, "KERNEL_CODE", revisions.KERNEL_CODE + 1)
    assert Findings(first.noted.get).within(**SETTING).find("kernel", FACTS) is None


def test_findings_of_another_owner_do_not_count() -> None:
    first = Findings(owner="a")
    first.within(**SETTING).note("kernel", FACTS, {"tuned_sec": [1.0]})
    known = [
        Findings(first.noted.get, owner=owner).within(**SETTING).find("kernel", FACTS)
        for owner in ("a", "b", "")
    ]
    assert known == [{"tuned_sec": [1.0]}, None, None]

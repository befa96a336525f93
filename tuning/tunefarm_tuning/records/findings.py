"""Findings: what earlier compiles found out about kernels and alternatives, so that nothing is measured twice.

A finding holds for a workload under a config, on a device model, with a toolchain and this code's revision. Wrong answers, crashes and
slow kernels are no findings: they are tried again, because the machine may have been at fault.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tunefarm_tuning.workload.revisions import code_revision

Finding = Mapping[str, Any]
"""A JSON object."""


class Findings:
    """Looks findings up, and collects new ones.

    Args:
        known: Returns an earlier finding by its key, or None; by default nothing is known.
        objects: A folder where compiles keep scheduled kernels and their object code for later ones of the same file; None keeps none.
        references: The same for the outputs of ONNX Runtime.
        owner: Whose findings these are. A model may take over its compile and invent them: those of other owners do not count.

    Attributes:
        objects: As given.
        references: Likewise.
        noted: New findings by key, for the caller to store.
        reused: How many earlier findings were used, by kind.
    """

    def __init__(
        self,
        known: Callable[[str], Finding | None] | None = None,
        *,
        objects: Path | None = None,
        references: Path | None = None,
        owner: str = "",
    ) -> None:
        self._known = known or (lambda _key: None)
        self.objects = objects
        self.references = references
        self._owner = owner
        self.noted: dict[str, Finding] = {}
        self.reused: Counter[str] = Counter()

    def within(self, **setting: str) -> ScopedFindings:
        """Return the findings of one setting: target, device model, toolchain."""
        return ScopedFindings(self, {**setting, "owner": self._owner} if self._owner else setting)

    def look_up(self, key: str) -> Finding | None:
        """Return a finding of this compile or an earlier one; None if there is none."""
        return self.noted.get(key) or self._known(key)


class ScopedFindings:
    """The findings of one setting."""

    def __init__(self, findings: Findings, setting: Mapping[str, str]) -> None:
        self._findings = findings
        self._setting = {**setting, "code": code_revision()}

    def find(
        self, kind: str, facts: Mapping[str, Any], holds: Callable[[Finding], bool] = lambda _finding: True
    ) -> Finding | None:
        """Return what is known of a kind under these facts, and count it as reused; None if it does not hold for the caller."""
        finding = self._findings.look_up(self._key(kind, facts))
        if finding is None or not holds(finding):
            return None
        self._findings.reused[kind] += 1
        return finding

    def peek(self, kind: str, facts: Mapping[str, Any]) -> Finding | None:
        """Return what is known of a kind under these facts, without counting it as reused."""
        return self._findings.look_up(self._key(kind, facts))

    def note(self, kind: str, facts: Mapping[str, Any], finding: Finding) -> None:
        """Remember a finding."""
        self._findings.noted[self._key(kind, facts)] = finding

    def _key(self, kind: str, facts: Mapping[str, Any]) -> str:
        text = json.dumps({"kind": kind, "setting": self._setting, "facts": facts}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

"""The table of what became of mutants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mutants.trial import LIMIT_SEC

WORDS = ("accepted", "refused", "crashed", "timed out", "out of memory", "unclear")


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown: rows of changes, columns of endings; then the codes, and what was promised."""
    kinds = sorted({f"{line['network'].split(':')[0]}: {kind}" for line in lines for kind in line["changes"]})
    rows = [
        (
            kind,
            [
                line
                for line in lines
                if kind in {f"{line['network'].split(':')[0]}: {name}" for name in line["changes"]}
            ],
        )
        for kind in kinds
    ]
    rows.append(("all", list(lines)))
    text = [f"| Change | {' | '.join(WORDS)} |", f"|---|{'---:|' * len(WORDS)}"]
    for kind, chosen in rows:
        counts = Counter(line["word"] for line in chosen)
        text.append(f"| {kind} | {' | '.join(str(counts[word]) for word in WORDS)} |")
    codes = Counter(line["code"] for line in lines if line["code"])
    text += ["", "| Error | Files |", "|---|---:|"]
    text += [f"| `{code}` | {count} |" for code, count in codes.most_common()]
    refused = [line["sec"] for line in lines if line["word"] != "accepted"]
    slowest = max((line["sec"] for line in lines if line["word"] == "accepted"), default=0.0)
    cpu_sec = max((line.get("cpu_sec", 0.0) for line in lines), default=0.0)
    text += [
        "",
        "| Promise | Broken by |",
        "|---|---:|",
        f"| no file outside opened or changed | {sum(bool(line['touched']) for line in lines)} |",
        f"| no process left | {sum(bool(line['left']) for line in lines)} |",
        f"| an error within {LIMIT_SEC:.0f} s (the slowest took {max(refused, default=0.0):.1f} s) | {sum(sec > LIMIT_SEC for sec in refused)} |",
        f"| a clear error | {sum(line['word'] == 'unclear' for line in lines)} |",
        "",
        f"The slowest network that was accepted took {slowest:.1f} s. No import took more than {cpu_sec:.1f} processor seconds.",
        "",
    ]
    return "\n".join(text)

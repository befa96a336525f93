"""What ``tunefarm jobs artifact --so-far`` says of the file that it saved, from a given client."""

from __future__ import annotations

import json
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunefarm.cli.base.output import Output
from tunefarm.cli.jobs.results import get_artifact

UNTUNED = SimpleNamespace(sha256=sha256(b"untuned").hexdigest(), text="untuned")
TUNED = SimpleNamespace(sha256=sha256(b"tuned").hexdigest(), text="2 of 2 kernels tuned")


@pytest.mark.parametrize(
    ("saved", "before", "after", "text"),
    [
        (b"untuned", UNTUNED, UNTUNED, "untuned"),
        (b"untuned", UNTUNED, TUNED, "untuned"),  # a better one came at the end of the download
        (b"tuned", UNTUNED, TUNED, "2 of 2 kernels tuned"),
        (b"the artifact", TUNED, None, None),
        (b"another draft", None, TUNED, None),
    ],
)
def test_a_draft_is_described_only_if_it_is_the_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    saved: bytes,
    before: Any,
    after: Any,
    text: str | None,
) -> None:
    drafts = [before]

    def download(_job_id: str, folder: Path, **_: Any) -> Path:
        drafts.append(after)
        path = folder / "a.tunefarm"
        path.write_bytes(saved)
        return path

    jobs = SimpleNamespace(get=lambda _job_id: SimpleNamespace(draft=drafts[-1]), download=download)
    server: Any = SimpleNamespace(connect=lambda: nullcontext(SimpleNamespace(jobs=jobs)))
    get_artifact(Output(json=True), server, f"job_{'0' * 26}", tmp_path, so_far=True)
    assert json.loads(capsys.readouterr().out).get("draft") == text

"""Completions are text that a shell does not interpret."""

from __future__ import annotations

import typer

from tunefarm.cli.base.completion import _offers
from tunefarm.cli.main import make_app


def test_only_harmless_words_are_offered() -> None:
    ctx = typer.Context(typer.main.get_command(make_app()))
    ctx.params = {"url_": "http://127.0.0.1:1", "api_key_": "k"}
    words = ["lab-1", "$(reboot)", "a b", "-rf", "a;b", "a`b", "a\nb", "", "job_1", "é", "a'b", "lab.2"]
    offered = _offers(ctx, "", lambda client: iter([(word, "what\x1b it is") for word in words]))
    assert offered == [(word, "what\\x1b it is") for word in ("lab-1", "job_1", "lab.2")]
    assert [word for word, _ in _offers(ctx, "lab", lambda client: iter([(w, "") for w in words]))] == [
        "lab-1",
        "lab.2",
    ]

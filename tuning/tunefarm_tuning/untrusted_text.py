"""Text that a stranger wrote (names in a model, say), made safe for logs, pages and terminals."""

from __future__ import annotations


def clean(text: str, limit: int = 120) -> str:
    r"""Return `text` without control characters, on one line, at most `limit` characters long.

    Unprintable characters (terminal escapes, newlines, lone surrogates, direction overrides) become
    ``\xNN``-like escapes; what is over the limit is cut and counted. HTML is left to the page's own escaping.
    """
    safe: list[str] = []
    length = 0
    for position, c in enumerate(text):
        shown = c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        length += len(shown)
        if length > limit:
            return f"{''.join(safe)}… ({len(text) - position} more characters)"
        safe.append(shown)
    return "".join(safe)

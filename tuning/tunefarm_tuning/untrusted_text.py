"""Text that a stranger wrote (names in a model, say), made safe for logs, pages and terminals."""

from __future__ import annotations


def clean(text: str, limit: int = 120) -> str:
    r"""Return `text` without control characters, on one line, at most `limit` characters long.

    Unprintable characters (terminal escapes, newlines, lone surrogates, direction overrides) become
    ``\xNN``-like escapes; what is over the limit is cut and counted. HTML is left to the page's own escaping.
    """
    head = text[:limit]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in head)
    cut = len(text) - len(head)
    return f"{safe[:limit]}… ({cut} more characters)" if cut > 0 else safe

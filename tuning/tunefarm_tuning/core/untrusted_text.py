"""Check names, and make text of strangers (names in a model) safe for logs, pages and terminals."""

from __future__ import annotations

import re

NAME_RULE = "1 to 100 letters, digits, dots, dashes and underscores"
"""What `is_name` accepts, for messages."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Return whether a device or a pool may have this name; its first character is a letter or digit."""
    return _NAME.fullmatch(text) is not None


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


def clean_message(error: BaseException, limit: int = 300) -> str:
    """Return the message of a library's exception, clean and on one line; its class's name if the message is empty."""
    return clean(" ".join(str(error).split()) or type(error).__name__, limit)


def clean_lines(text: str) -> str:
    r"""Return `text` with its lines, but with escapes for characters that control a terminal or are invisible.

    Lines end in ``\n``, tabs stay; nothing is cut.
    """
    if text.isascii() and all(c.isprintable() or c in "\n\t" for c in set(text)):
        return text
    printable = {c: c for c in set(text) if c.isprintable() or c in "\n\t"}
    return "".join(printable.get(c) or c.encode("unicode_escape").decode("ascii") for c in text)

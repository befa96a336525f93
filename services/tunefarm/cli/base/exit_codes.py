"""Exit codes: one table from error classes to numbers, for every command."""

from __future__ import annotations

from collections.abc import Mapping

OK = 0
FAILED = 1
BAD_INPUT = 2
NOT_POSSIBLE = 3
UNAVAILABLE = 4
NOT_ALLOWED = 5
BUG = 70
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143

EPILOG = (
    "Exit codes: 0 done · 1 failed · 2 wrong usage or input · 3 not found, or not possible now · 4 server "
    "or device unavailable · 5 API key missing or not sufficient · 70 a bug in tunefarm · 129, 130, 143 ended by "
    "SIGHUP, Ctrl-C, SIGTERM"
)

# By name, so that the table needs no import: the client's classes pull in httpx, and `--help` must be instant.
_BY_CLASS: Mapping[str, int] = {
    "InvalidInputError": BAD_INPUT,
    "InvalidRequestError": BAD_INPUT,
    "ModelFailedError": BAD_INPUT,
    "ArtifactError": BAD_INPUT,
    "NotFoundError": NOT_POSSIBLE,
    "ConflictError": NOT_POSSIBLE,
    "TransientError": UNAVAILABLE,
    "UnavailableError": UNAVAILABLE,
    "AuthenticationError": NOT_ALLOWED,
    "ForbiddenError": NOT_ALLOWED,
    "InvariantError": BUG,
    "TunefarmError": FAILED,
    "ClientError": FAILED,
    "FileNotFoundError": BAD_INPUT,
    "FileExistsError": BAD_INPUT,
    "IsADirectoryError": BAD_INPUT,
    "NotADirectoryError": BAD_INPUT,
    "PermissionError": BAD_INPUT,
    "OSError": FAILED,
    "ModuleNotFoundError": BAD_INPUT,
    "KeyboardInterrupt": INTERRUPTED,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error: from its nearest class in the table, else the code for a bug."""
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_CLASS:
            return _BY_CLASS[kind.__name__]
    return BUG

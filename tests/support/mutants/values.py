"""Numbers, texts and paths that readers get wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass

SIZES = (
    *(0, -1, 1, 2, 3, 7, 255, 65_536, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40),
    *((1 << 62) + 1, (1 << 63) - 1, -2, -(1 << 31), -(1 << 63)),
)
FLOATS = (0.0, -1.0, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "x" * 5000,
    "../..",
    "\x1b[31m",
    "NOTSET",
    "SAME_UPPER",
    "\u202e",
    "%s%n",
    "AUTO_PAD",
    "ij,jk->ik",
)
_INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True)
class Aims:
    """Files that no import has to open, as absolute paths and as seen from the model's folder."""

    paths: tuple[str, ...] = ("/etc/hostname", "../secret", "/proc/self/environ", "/dev/zero")


def near(rng: random.Random, value: int) -> int:
    """Return a number near another one, or an extreme one."""
    return rng.choice(
        (value + 1, value - 1, -value, value * 2, value + rng.randrange(100), rng.choice(SIZES))
    )


def near32(rng: random.Random, value: int) -> int:
    """The same, of 32 bits."""
    return max(_INT32[0], min(_INT32[1], near(rng, value)))


def near64(rng: random.Random, value: int) -> int:
    """The same, of 64 bits."""
    return max(-(1 << 63), min((1 << 63) - 1, near(rng, value)))

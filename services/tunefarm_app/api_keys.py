"""API keys: made once, shown once, stored as a hash.

A key reads ``tfk_<id>_<secret>``: the id finds the row, the secret is compared in constant time with its SHA-256.
A fast hash is right here: the secret is 256 random bits, nothing that could be guessed from a dictionary.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from tunefarm_app.composition import Services
from tunefarm_db.values import ApiKey
from tunefarm_tuning.errors import InvalidInputError

SCOPES = ("read", "write", "device", "admin")
"""What a key may do: look; upload and tune; register devices; everything."""

_KEY = re.compile(r"tfk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TOUCH_AFTER_SEC = 60.0

"""Random input for what speaks a protocol of ours: how much of it, and messages as the gateway has them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from json_mutations import any_json

COUNT = int(os.environ.get("TUNEFARM_FUZZ", "500"))
SEED = int(os.environ.get("TUNEFARM_FUZZ_SEED", "0"))
AT_ONCE = 25
SLOWEST_SEC = 10.0
LIMITS = settings(
    max_examples=-(-COUNT // AT_ONCE),
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

Say = Callable[[str], None]


def fuzz(test: Callable[..., None]) -> Callable[..., None]:
    return LIMITS(seed(SEED)(test) if SEED else test)


def batches(item: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(item, min_size=AT_ONCE, max_size=AT_ONCE)


KEYS = (
    *("ticket", "timeout_sec", "wait_sec", "prove", "proof"),
    *("device", "session", "server", "refused", "why", "open", "ping"),
)


def message_of(message: Any) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(2, "big") + data


MESSAGES = st.one_of(
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(KEYS), any_json(*KEYS), max_size=4).map(message_of),
)

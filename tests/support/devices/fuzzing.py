"""Random input for what speaks a protocol of ours: how much of it, and messages as the gateway has them."""

from __future__ import annotations

import json
import os
import threading
import time
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


class RunningTime:
    """A clock that stands still while the tests' processes are stopped, as for a measurement on the same machine."""

    _TICK_SEC = 0.2
    _MOST_SEC = 1.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen, self._sec = time.monotonic(), 0.0
        threading.Thread(target=self._tick, daemon=True).start()

    def __call__(self) -> float:
        with self._lock:
            passed = time.monotonic() - self._seen
            self._seen += passed
            self._sec += min(passed, self._MOST_SEC)
            return self._sec

    def _tick(self) -> None:
        while True:
            time.sleep(self._TICK_SEC)
            self()


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

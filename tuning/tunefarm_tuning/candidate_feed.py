"""Candidates that get ready in a thread of their own."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from tunefarm_tuning.candidates import Candidate, Candidates


class CandidateFeed:
    """Asks and builds from now on, however slowly its candidates are taken.

    Ownership: the consumer deletes the kernels that it took, `stop` the others.
    Concurrency: one consumer, in any thread.

    Args:
        candidates: What to feed.
        after: When all of these are set, the tuner may be asked.

    Attributes:
        lead_sec: From then until the first candidate was ready.
        waited_first_sec: How long the consumer waited for that.
        waited_sec: How long it waited for the others.
    """

    def __init__(self, candidates: Candidates, after: Sequence[threading.Event] = ()) -> None:
        self._candidates = candidates
        self._after = after
        self.lead_sec = 0.0
        self.waited_first_sec = 0.0
        self.waited_sec = 0.0
        self._ready: SimpleQueue[Candidate | BaseException | None] = SimpleQueue()
        # What is logged there is of the same job.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="prepare-round", daemon=True
        )
        self._thread.start()

    def _work(self) -> None:
        try:
            for event in self._after:
                event.wait()
            began = time.monotonic()
            for candidate in self._candidates:
                self.lead_sec = self.lead_sec or time.monotonic() - began
                self._ready.put(candidate)
        except BaseException as error:  # noqa: BLE001  (the consumer's thread raises it)
            self._ready.put(error)
        finally:
            self._candidates.begun.set()
            self._candidates.settled.set()
            self._ready.put(None)

    def __iter__(self) -> Iterator[Candidate]:
        began = time.monotonic()
        one = self._ready.get()
        self.waited_first_sec = time.monotonic() - began
        while one is not None:
            if isinstance(one, BaseException):
                raise one
            yield one
            began = time.monotonic()
            one = self._ready.get()
            self.waited_sec += time.monotonic() - began

    def stop(self) -> None:
        """End what is under way, and delete the kernels that nobody took. Returns when the thread has ended."""
        self._candidates.stop()
        self._thread.join()
        while not self._ready.empty():
            one = self._ready.get()
            if isinstance(one, Candidate):
                one.delete()

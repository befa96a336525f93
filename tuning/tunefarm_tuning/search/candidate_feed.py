"""Candidates that get ready in a thread of their own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from tunefarm_tuning.search.candidates import Candidate, Candidates


class CandidateFeed:
    """Asks and builds from now on, however slowly its candidates are taken.

    Ownership: the consumer deletes the kernels that it took, `stop` the others.
    Concurrency: one consumer, in any thread.

    Args:
        candidates: What to feed.
        after: When all of these are set, the tuner may be asked.
    """

    def __init__(self, candidates: Candidates, after: Sequence[threading.Event] = ()) -> None:
        self._candidates = candidates
        self._after = after
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
            for candidate in self._candidates:
                self._ready.put(candidate)
        except BaseException as error:  # noqa: BLE001  (the consumer's thread raises it)
            self._ready.put(error)
        finally:
            self._candidates.begun.set()
            self._candidates.settled.set()
            self._ready.put(None)

    def __iter__(self) -> Iterator[Candidate]:
        while (one := self._ready.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one

    def stop(self) -> None:
        """End what is under way, and delete the kernels that nobody took. Returns when the thread has ended."""
        self._candidates.stop()
        self._thread.join()
        while not self._ready.empty():
            one = self._ready.get()
            if isinstance(one, Candidate):
                one.delete()

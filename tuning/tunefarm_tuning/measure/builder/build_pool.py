"""Distribute batches of builds to workers, in the order of the batches."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult

_AGAIN_SEC = 0.2


class PoolWorker(Protocol):
    """Builds one candidate at a time; `interrupt` ends that from another thread."""

    def build(self, candidate: BuildInput, output: Path) -> BuildResult: ...

    def interrupt(self) -> None: ...


W = TypeVar("W", bound=PoolWorker)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Job(Generic[W]):
    owner: object
    run: Callable[[W], None]  # raises nothing


class BuildPool(Generic[W]):
    """Workers and a queue of builds. A worker that has finished with one batch starts on the next without waiting for others.

    Each busy worker has a thread; without work there are no threads. `fresh_path` returns a new path for a kernel at each call.
    Concurrency: any thread.
    """

    def __init__(self, workers: Sequence[W], fresh_path: Callable[[], Path]) -> None:
        self._workers = list(workers)
        self._fresh_path = fresh_path
        self._changed = threading.Condition()
        self._waiting: deque[_Job[W]] = deque()
        self._idle = list(range(len(self._workers)))
        self._busy: dict[int, object] = {}

    def build_each(self, inputs: Sequence[BuildInput]) -> BuildStream:
        """Start to build a batch as soon as earlier batches leave a worker idle."""
        stream = BuildStream(self, len(inputs))

        def job(number: int, candidate: BuildInput, path: Path) -> _Job[W]:
            context = contextvars.copy_context()  # the caller's spans
            return _Job(
                stream,
                lambda worker: context.run(stream.put, number, lambda: worker.build(candidate, path)),
            )

        self._start([job(number, candidate, self._fresh_path()) for number, candidate in enumerate(inputs)])
        return stream

    def call(self, function: Callable[[W], T]) -> T:
        """Call the function with the next idle worker, ahead of all waiting builds; return its result."""
        future: Future[T] = Future()

        def run(worker: W) -> None:
            try:
                future.set_result(function(worker))
            except BaseException as error:  # noqa: BLE001  (the caller's thread raises it)
                future.set_exception(error)

        self._start([_Job(future, run)], first=True)
        return future.result()

    def stop(self, owner: object) -> None:
        """Drop an owner's waiting builds and end its running ones; return when they have ended."""
        with self._changed:
            self._waiting = deque(job for job in self._waiting if job.owner is not owner)
            while busy := [number for number, running in self._busy.items() if running is owner]:
                for number in busy:
                    self._workers[number].interrupt()
                # Repeated, since a build may just have been starting.
                self._changed.wait(_AGAIN_SEC)

    def _start(self, jobs: Sequence[_Job[W]], *, first: bool = False) -> None:
        with self._changed:
            if first:
                self._waiting.extendleft(reversed(jobs))
            else:
                self._waiting.extend(jobs)
            for _ in range(min(len(self._idle), len(jobs))):
                number = self._idle.pop(0)
                try:
                    threading.Thread(
                        target=self._work, args=(number,), name=f"build-{number}", daemon=True
                    ).start()
                except BaseException:
                    self._idle.insert(0, number)
                    raise

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                self._busy.pop(number, None)
                self._changed.notify_all()
                if not self._waiting:
                    self._idle.append(number)
                    self._idle.sort()
                    return
                job = self._waiting.popleft()
                self._busy[number] = job.owner
            job.run(self._workers[number])


class BuildStream(Iterator[tuple[int, BuildResult]]):
    """Implements `Builds`: the results of one batch as they become available.

    Concurrency: one consumer, and `close` from any thread.
    """

    def __init__(self, pool: BuildPool[Any], size: int) -> None:
        self._pool = pool
        self._left = size
        self._done: SimpleQueue[tuple[int, BuildResult] | BaseException | None] = SimpleQueue()
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, BuildResult]:
        item = self._done.get() if self._left and not self._closed else None
        if item is None:
            raise StopIteration
        if isinstance(item, BaseException):
            self.close()
            raise item
        self._left -= 1
        return item

    def put(self, number: int, build: Callable[[], BuildResult]) -> None:
        """Build a candidate in a worker's thread."""
        try:
            self._done.put((number, build()))
        except BaseException as error:  # noqa: BLE001  (the consumer's thread raises it)
            self._done.put(error)

    def close(self) -> None:
        """Stop the remaining builds, and delete results that were not taken."""
        self._closed = True
        self._pool.stop(self)
        while not self._done.empty():
            item = self._done.get()
            if isinstance(item, tuple) and item[1].artifact_path is not None:
                item[1].artifact_path.unlink(missing_ok=True)
        self._done.put(None)  # ends a waiting consumer

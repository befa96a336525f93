"""Samples: real inputs of a network, which its user gives in an ``.npz`` file.

A file has an array per input, under the input's name, or under ``arr_0``, ``arr_1``, ... in the order of the inputs. An array has
exactly the input's shape, or one more dimension in front: the number of sample sets. The file is a stranger's: it is only read in
a child process (`samples_child`), under limits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.errors import ChildClosed, ChildFailed, ChildOutOfMemory, ChildTimedOut
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.model_child import CHILD_ENVIRONMENT, ImportLimits
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.workload.model import Model

MAX_SAMPLE_BYTES = 256 << 20
"""Largest file of samples, and the most that its arrays may have together once they are unpacked, by default."""

MAX_USED_SETS = 8
"""So many sample sets of a file are run; more are checked, but each run of a network takes its time."""

MAX_SAMPLE_FILES = 8
"""Most files of samples of one job."""

_SAMPLES_CHILD = "tunefarm_tuning.reference.samples_child"
_REFERENCE_CHILD = "tunefarm_tuning.frontend.onnx.reference_child"
_ZIP_HEAD, _EMPTY_ZIP_HEAD = b"PK\x03\x04", b"PK\x05\x06"
_OTHER_HEADS = {
    b"\x93NUMPY": "it is a single array (.npy)",
    b"\x80": "it looks like a pickled Python object",
    b"\x89HDF": "it is an HDF5 file",
}
_HOW = "write it with numpy.savez(path, **{name: array, ...})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSummary(JsonFields):
    """What a file of samples holds.

    Attributes:
        sets: Number of sample sets.
        used: Indices of those that are run: all, or `MAX_USED_SETS` spread evenly over the file.
        fits: Index of the model's set of shapes that they fit; 0 of a model with one.
    """

    sets: int
    used: tuple[int, ...]
    fits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFeed:
    """One sample set, written as a file of arrays.

    Attributes:
        file: Index of the user's file.
        index: Index of the set in it.
        fits: Index of the model's set of shapes.
    """

    file: int
    index: int
    fits: int = 0
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFeeds:
    """The sample sets of all files that are run, in order, and a summary of each file."""

    feeds: tuple[SampleFeed, ...] = ()
    summaries: tuple[SampleSummary, ...] = ()

    def fitting(self, number: int) -> tuple[SampleFeed, ...]:
        """Return the sample sets in one of the model's sets of shapes."""
        return tuple(feed for feed in self.feeds if feed.fits == number)


def sample_paths(samples: Path | str | Sequence[Path | str]) -> tuple[Path, ...]:
    """Return the files that a caller names: one, or several.

    Raises:
        InvalidInputError: too-many-sample-files.
    """
    paths = (samples,) if isinstance(samples, Path | str) else tuple(samples)
    if len(paths) > MAX_SAMPLE_FILES:
        raise InvalidInputError(
            f"there are {len(paths)} files of samples; at most {MAX_SAMPLE_FILES} can be given",
            code="too-many-sample-files",
            limit=MAX_SAMPLE_FILES,
        )
    return tuple(Path(path) for path in paths)


def used_sets(count: int, most: int = MAX_USED_SETS) -> tuple[int, ...]:
    """Return the indices of the sample sets that are run, at most so many of `count` sets."""
    if count <= most:
        return tuple(range(count))
    return tuple(round(i * (count - 1) / (most - 1)) for i in range(most))


def check_sample_head(head: bytes) -> None:
    """Refuse a file that cannot be a ``.npz`` file, by its first bytes.

    Raises:
        InvalidInputError: empty-samples, not-npz.
    """
    if not head or head.startswith(_EMPTY_ZIP_HEAD):
        raise InvalidInputError(f"the file of samples is empty; {_HOW}", code="empty-samples")
    if not head.startswith(_ZIP_HEAD):
        looks = next((text for start, text in _OTHER_HEADS.items() if head.startswith(start)), None)
        raise InvalidInputError(
            f"the samples are not a .npz file{f': {looks}' if looks else ''}; {_HOW}", code="not-npz"
        )


def samples_too_large(given_bytes: int, limit_bytes: int) -> InvalidInputError:
    """Return the error for a file of samples over the limit."""
    return InvalidInputError(
        f"the file of samples has {given_bytes} bytes; the limit is {limit_bytes}: give fewer samples",
        code="samples-too-large",
        size_bytes=given_bytes,
        limit_bytes=limit_bytes,
    )


def check_samples(
    path: Path | str,
    model: Model,
    *,
    limits: ImportLimits | None = None,
    limit_bytes: int = MAX_SAMPLE_BYTES,
    cancellation: Cancellation | None = None,
) -> SampleSummary:
    """Check that samples fit a network, and that ONNX Runtime can run the network on them.

    Args:
        path: The ``.npz`` file: an array per input, with the input's shape or with one more dimension in front.
        model: The network.
        limits: Memory and time of the child processes.
        limit_bytes: Limit of the file's size, and of its arrays' together.
        cancellation: Ends the check from another thread.

    Returns:
        How many sample sets there are, and which of them a compile runs.

    Raises:
        InvalidInputError: What is wrong with the file (codes empty-samples, not-npz, samples-too-large, pickled-samples,
            damaged-samples, duplicate-sample, unknown-sample, missing-sample, sample-dtype, sample-shape, sample-count,
            sample-not-finite); if ONNX Runtime cannot run the network on them (samples-failed); if reading or running took
            too long, too much memory, or crashed (samples-timeout, samples-memory, samples-crashed).
        ChildClosed: If `cancellation` was used.
    """
    limits = limits or ImportLimits()
    with closing(ScratchDir()) as scratch:
        summary, feeds = write_feeds(
            path,
            model,
            scratch.path,
            limits=limits,
            limit_bytes=limit_bytes,
            cancellation=cancellation,
        )
        params = {
            "path": str(model.path.absolute()),
            "binding": model.each[summary.fits].binding.to_json(),
            "feeds": [str(feed) for feed in feeds],
            "numbers": list(summary.used),
        }
        access = Access(reads=(model.path, *feeds))
        _call(
            "running the model on the samples",
            _REFERENCE_CHILD,
            "run_samples",
            params,
            limits,
            access,
            cancellation,
        )
    return summary


def write_all_feeds(
    paths: Sequence[Path],
    model: Model,
    folder: Path,
    *,
    limits: ImportLimits,
    limit_bytes: int,
    most_sets: int = MAX_USED_SETS,
    cancellation: Cancellation | None = None,
) -> SampleFeeds:
    """Check several files of samples, and write the used sets of each, as `write_feeds`.

    Raises:
        InvalidInputError: As `check_samples`.
    """
    feeds: list[SampleFeed] = []
    summaries = []
    for number, path in enumerate(paths):
        summary, written = write_feeds(
            path,
            model,
            folder,
            stem=f"samples-{number}",
            limits=limits,
            limit_bytes=limit_bytes,
            most_sets=most_sets,
            cancellation=cancellation,
        )
        summaries.append(summary)
        feeds += [
            SampleFeed(file=number, index=index, fits=summary.fits, path=feed)
            for index, feed in zip(summary.used, written, strict=True)
        ]
    return SampleFeeds(feeds=tuple(feeds), summaries=tuple(summaries))


def write_feeds(
    path: Path | str,
    model: Model,
    folder: Path,
    *,
    stem: str = "sample",
    limits: ImportLimits | None = None,
    limit_bytes: int = MAX_SAMPLE_BYTES,
    most_sets: int = MAX_USED_SETS,
    cancellation: Cancellation | None = None,
) -> tuple[SampleSummary, list[Path]]:
    """Check a file of samples, and write each used set as a file of arrays in the order of the inputs.

    Args:
        path: The ``.npz`` file.
        model: The network.
        folder: Where to write.
        stem: The files' names begin with it.
        limits: Memory and time of the child process.
        limit_bytes: Limit of the file's size, and of its arrays' together.
        most_sets: Most sets that are written.
        cancellation: Ends the check from another thread.

    Returns:
        The summary, and a file for each of its used sets.

    Raises:
        InvalidInputError: As `check_samples`.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            given_bytes = os.fstat(file.fileno()).st_size
            head = file.read(8)
    except OSError as error:
        raise InvalidInputError(
            f"the file of samples cannot be read: {error.strerror or error}", code="no-such-file"
        ) from error
    if given_bytes > limit_bytes:
        raise samples_too_large(given_bytes, limit_bytes)
    check_sample_head(head)
    params = {
        "path": str(path.absolute()),
        "shapes": [[spec.to_json() for spec in each.inputs] for each in model.each],
        "bound": list(model.values),
        "limit_bytes": limit_bytes,
        "most_sets": most_sets,
        "folder": str(folder.absolute()),
        "stem": stem,
    }
    limits = limits or ImportLimits()
    access = Access(reads=(path,), writes=(folder,))
    reply = _call("reading the samples", _SAMPLES_CHILD, "write_feeds", params, limits, access, cancellation)
    summary = SampleSummary.from_json(reply)
    # Named here: whatever a child that was taken over names, others would be let read.
    return summary, [feed_path(folder.absolute(), stem, index) for index in summary.used]


def feed_path(folder: Path, stem: str, index: int) -> Path:
    """Return where a set of samples is written as a file of arrays (see `write_feeds`)."""
    return folder / f"{stem}-{index:d}.npz"


def _call(
    doing: str,
    module: str,
    handler: str,
    params: dict[str, Any],
    limits: ImportLimits,
    access: Access,
    cancellation: Cancellation | None,
) -> Any:
    try:
        return call_in_child(
            module,
            handler,
            params,
            limits=ChildLimits(memory_bytes=limits.memory_bytes, cpu_sec=limits.cpu_sec),
            access=access,
            timeout_sec=limits.timeout_sec,
            env=CHILD_ENVIRONMENT,
            cancellation=cancellation,
        )
    except ChildClosed:
        raise
    except ChildTimedOut as error:
        message = f"{doing} took longer than {limits.timeout_sec:g} s: give fewer or smaller samples"
        raise InvalidInputError(message, code="samples-timeout", limit_sec=limits.timeout_sec) from error
    except ChildOutOfMemory as error:
        message = f"{doing} took more than {limits.memory_bytes >> 20} MiB of memory: give fewer samples"
        raise InvalidInputError(message, code="samples-memory", limit_bytes=limits.memory_bytes) from error
    except ChildFailed as error:
        raise InvalidInputError(f"{doing} crashed: {clean(error.message)}", code="samples-crashed") from error

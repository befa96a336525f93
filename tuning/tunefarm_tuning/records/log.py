"""`RecordLog`: a file of tuning records that grows during a run and stays readable if the run is killed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import InvalidInputError, InvalidRecordError
from tunefarm_tuning.records.record import TuningRecord

_LONGEST_LINE_BYTES = 1 << 20


class RecordLog(Closing):
    """Appends records to a JSON-lines file, and creates it if needed. `append` returns after writing.

    An incomplete last line, which a killed writer left, is removed first.

    Raises:
        InvalidInputError: If the file cannot be written (code bad-log-path).
    """

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                _mend(path)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(
                f"cannot write the log {path}: {error.strerror or error}", code="bad-log-path"
            ) from error

    def append(self, records: Iterable[TuningRecord]) -> None:
        """Write records at the end of the file."""
        for record in records:
            self._file.write(record.to_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _mend(path: Path) -> None:
    """Complete the last line: with a newline if it is a record, else by removing it."""
    with path.open("rb+") as file:
        size = file.seek(0, 2)
        start = max(0, size - _LONGEST_LINE_BYTES)
        file.seek(start)
        tail = file.read()
        if not tail or tail.endswith(b"\n"):
            return
        last = tail.rsplit(b"\n", 1)[-1]
        try:
            TuningRecord.from_json(last.decode("utf-8"))
        except (InvalidRecordError, UnicodeDecodeError):
            file.truncate(size - len(last))
        else:
            file.write(b"\n")

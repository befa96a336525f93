"""Run a program in a terminal of its own, and read what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from waiting import wait_until

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """The terminal of a process. `raw` is everything that the process wrote."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self.raw = ""
        self._screen = screen
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Return the output without control sequences."""
        return _SEQUENCE.sub("", self.raw)

    def wait_for(self, text: str) -> None:
        """Wait until it has written something."""
        wait_until(lambda: text in self.text or self.process.poll() is not None, repr(text))
        assert text in self.text, self.text

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._screen, f"{text}\n".encode())

    def end(self) -> int:
        """Wait for the process to end by itself, and return its exit code."""
        code = self.process.wait(120)
        self._reader.join(60)
        return code

    def _read(self) -> None:
        with suppress(OSError):  # the other side was closed
            while chunk := os.read(self._screen, 65536):
                self.raw += chunk.decode("utf-8", "replace")


@contextmanager
def terminal(
    arguments: Sequence[object], env: Mapping[str, str], *, lines: int = 40, columns: int = 160
) -> Iterator[Terminal]:
    """Run Python with these arguments in a terminal for the time of the block."""
    screen, end = pty.openpty()
    try:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=end,
            stdout=end,
            stderr=end,
            env={
                **{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
                "TERM": "xterm",
                **env,
            },
            start_new_session=True,
        )
    finally:
        os.close(end)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)

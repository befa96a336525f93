"""A process that has imported what most children of the engine import, and becomes a child with each order: `forked_children` runs it.

``python -P fork_server.py SOCKET_FD MODULE ...``. An order is an object of JSON: the child's early modules, environment, folder and cores. With it come
four descriptors: standard input, output and errors, and the lifeline. Two answers follow: the child's id, once it leads a session, and
`ADOPTED`, once it is no longer below this process. The process between the two has ended by then, so that the child belongs to whoever
adopts orphans: to the process that asked.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any

from tunefarm_tuning.process.__main__ import main

ADOPTED = b"adopted"
_DESCRIPTORS = 4
_ORDER_BYTES = 1 << 20


def serve(channel: socket.socket) -> list[str] | None:
    """Answer orders until nobody can send one. Return the arguments of a child, in the child; None at the end, in the server."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, _ORDER_BYTES, _DESCRIPTORS)
        if not text:
            return None
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            os.setsid()
            channel.send(str(os.getpid()).encode())
            channel.close()
            return become(json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)
        channel.send(ADOPTED)


def become(order: dict[str, Any], descriptors: list[int]) -> list[str]:
    """Make of this process what the order says; return its arguments."""
    *streams, lifeline = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    os.sched_setaffinity(0, order["cores"])
    return [str(lifeline), *order["early"]]


if __name__ == "__main__":
    gc.disable()
    for module in sys.argv[2:]:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(0 if arguments is None else main(arguments))

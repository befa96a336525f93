"""A module whose import starts a thread, as libraries do."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()

HANDLERS: dict[str, object] = {}

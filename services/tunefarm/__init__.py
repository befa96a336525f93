"""The parts that users import and type: the Python client, the artifact loader and the `tunefarm` command.

`Client`, `AsyncClient`, `load` and `InferenceSession` are imported when they are first asked for, so that ``import tunefarm`` costs nothing and needs neither
httpx nor TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefarm.artifact import load
    from tunefarm.client import AsyncClient, Client
    from tunefarm_tuning.artifact.loader import InferenceSession

    __version__: str

__all__ = ["AsyncClient", "Client", "InferenceSession", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        import tunefarm.client

        return getattr(tunefarm.client, name)
    if name == "load":
        from tunefarm.artifact import load

        return load
    if name == "InferenceSession":
        from tunefarm.artifact import loader

        return loader().InferenceSession
    if name == "__version__":
        from importlib.metadata import version

        return version("tunefarm")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

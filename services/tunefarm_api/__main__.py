"""``python -m tunefarm_api``: the API process. Settings come from ``TUNEFARM_*`` variables (`tunefarm_app.settings`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import structlog

from tunefarm_api.app import create_app
from tunefarm_api.first_key import ensure_device_token_file, ensure_key_file
from tunefarm_api.gate import LOOPBACK_HOSTS
from tunefarm_api.server import serve, url_of
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.signing import ensure_signing_key, public_keys
from tunefarm_app.runtime.composition import compose
from tunefarm_app.runtime.logs import configure_logging
from tunefarm_app.settings import Settings, load_settings
from tunefarm_db.schema import check_schema, upgrade
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_tuning.process.listening import listen

log = structlog.stdlib.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the API. Return the exit code: 0 after SIGTERM or SIGINT, 2 if it cannot start with its settings."""
    parser = _parser()
    options = parser.parse_args(argv)
    forbid_inspection()
    if (options.device_token_file is None) != (options.device_name is None):
        parser.error("--device-token-file and --device-name need each other")
    try:
        settings = load_settings()
        configure_logging(settings.log_level, role="api")
        _prepare(settings, options)
        listener = listen(options.host, options.port)
    except TunefarmError as error:
        sys.stderr.write(f"tunefarm-api: {error.message}\n")
        return 2
    with listener:
        url = url_of(listener, options.host)
        log.info("api starts", url=url, settings=settings.redacted())
        app = create_app(settings, allowed_hosts=_allowed_hosts(options.host, options.allow_host))
        serve(
            app,
            listener,
            url=url,
            trusted_proxies=settings.trusted_proxies,
            max_connections=settings.max_connections,
        )
    log.info("api ended")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tunefarm_api", description="Run tunefarm's REST API.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8000, help="port to listen on; 0 takes a free port (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="allowed host name in requests; may be repeated (default: on loopback the server's own names, else "
        "any)",
    )
    parser.add_argument("--migrate", action="store_true", help="upgrade the database's schema first")
    parser.add_argument(
        "--make-signing-key",
        action="store_true",
        help="create the file TUNEFARM_SIGNING_KEY, which workers sign with, if it is missing",
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="PATH",
        help="file with an API key; if it is missing or no longer valid, a new key is created and written to it",
    )
    parser.add_argument(
        "--device-token-file",
        type=Path,
        metavar="PATH",
        help="file with an enrolment token for a device that starts beside the API (see --device-name); if it is missing or "
        "no longer valid, a new token is created and written to it",
    )
    parser.add_argument("--device-name", metavar="NAME", help="the device that may use that token, once")
    return parser


def _prepare(settings: Settings, options: argparse.Namespace) -> None:
    if settings.gateway and settings.gateway_dir is not None:
        ensure_authority(settings.gateway_dir)
    if settings.signing_key is not None:
        if options.make_signing_key:
            ensure_signing_key(settings.signing_key)
        public_keys(settings.signing_key)  # the API needs no more
    if options.migrate:
        upgrade(settings.database_url.get_secret_value())
    services = compose(settings)
    try:
        check_schema(services.uow.engine)
        if options.key_file is not None:
            ensure_key_file(services, options.key_file)
        if options.device_token_file is not None:
            ensure_device_token_file(services, options.device_token_file, options.device_name)
    finally:
        services.close()


def _allowed_hosts(host: str, names: Sequence[str]) -> frozenset[str] | None:
    try:
        is_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if names:
        return frozenset(name.lower() for name in names) | (LOOPBACK_HOSTS if is_loopback else frozenset())
    return LOOPBACK_HOSTS if is_loopback else None


if __name__ == "__main__":
    sys.exit(main())

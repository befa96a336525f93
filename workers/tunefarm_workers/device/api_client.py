"""The calls that an agent makes to the farm's API.

``POST /v1/devices`` takes `DeviceDescription.to_json`, the ``rpc_key`` under which the gateway knows the RPC server, and whether it is
``ready``. It answers with the device: its ``id``, and ``by_gateway``, as all devices are reached. The same name again is the same device.

``POST /v1/devices/{id}/certificate`` takes the ``rpc_key`` and a ``certificate_request``, and answers with where the gateway is, and the
``certificate`` and ``authority`` that device and gateway know each other by. The next one is asked for long before its end.

``POST /v1/devices/enrol`` is made with the enrolment token in place of an API key, takes ``name`` and ``device_key``, and
answers with the device's own ``api_key``. A machine of several GPUs names the further ones in ``also``, and is answered
with theirs there.

``POST /v1/devices/{id}/heartbeat`` takes ``{"ready", "reason", "rpc_key", "info"}``; 404 means: register again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_workers.device.lean_httpx import httpx

_TIMEOUT_SEC = 5.0
_ENROLMENT = httpx.Timeout(_TIMEOUT_SEC, read=60.0)
"""A used token is good for a minute more: an answer that came later would be lost for good."""
_NOT_NOW = {408, 425, 429}
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a device needs for the farm's gateway.

    Attributes:
        host: The gateway's host; empty for the API's.
        port: The gateway's port.
        certificate: The device's, as PEM.
        authority: The certificate of the farm's authority, as PEM.
    """

    host: str
    port: int
    certificate: str
    authority: str


class ApiClient:
    """Talks to the API; every call ends within seconds, an enrolment within a minute or so.

    Failure: `TransientError` when the API is away (``was_sent``: whether the request may have been carried out all the same), `NotFoundError` when it does not know the device,
        `InvalidInputError` when it will never accept this (the key, the device).

    Attributes:
        renewal_is_due: Whether the farm said with the last heartbeat that the device's credential should be replaced.
    """

    def __init__(self, url: str, api_key: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self.renewal_is_due = False
        try:
            self._http = httpx.Client(
                base_url=url,
                headers={"Authorization": f"Bearer {api_key}"},
                timeout=_TIMEOUT_SEC,
                transport=transport,
                trust_env=False,  # a proxy must not come between a device and its farm by accident
            )
        except httpx.InvalidURL as error:
            raise InvalidInputError(f"the farm's URL is invalid: {error}", code="no-url") from error

    def register(self, device: Mapping[str, Any]) -> str:
        """Register the device, and return its id; `device` is the request's body.

        Raises:
            InvalidInputError: Also ``no-gateway``, if the farm is an older one that has none.
        """
        answer = self._post("/v1/devices", {**device, "by_gateway": True})
        if "id" not in answer:
            raise TransientError("the API's response lacks 'id': is it a tunefarm API?")
        if not answer.get("by_gateway"):
            raise InvalidInputError(
                "the farm has no gateway that this device can dial: start a gateway, and set TUNEFARM_GATEWAY for the API and its workers",
                code="no-gateway",
            )
        return str(answer["id"])

    def certify(self, device_id: str, rpc_key: str, request: str) -> Certificate:
        """Return a new certificate for the key of a request (PEM)."""
        body = {"rpc_key": rpc_key, "certificate_request": request}
        answer = self._post(f"/v1/devices/{quote(device_id, safe='')}/certificate", body)
        try:
            return Certificate(
                host=str(answer["host"] or ""),
                port=int(answer["port"]),
                certificate=str(answer["certificate"]),
                authority=str(answer["authority"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TransientError(f"the API's response lacks {error}: is it a tunefarm API?") from error

    def enrol(self, names: Sequence[str], device_key: str) -> dict[str, str]:
        """Use up the enrolment token; return an API key for each device of this machine, by its name."""
        body: dict[str, Any] = {"name": names[0], "device_key": device_key}
        if len(names) > 1:
            body["also"] = list(names[1:])
        answer = self._post("/v1/devices/enrol", body, timeout=_ENROLMENT)
        try:
            keys = {device["name"]: device["api_key"] for device in (answer, *answer.get("also", ()))}
        except (KeyError, TypeError) as error:
            raise TransientError(f"the API's response lacks {error}: is it a tunefarm API?") from error
        if not all(isinstance(keys.get(name), str) and keys[name] for name in names):
            raise TransientError("the API's response lacks an api_key: is it a tunefarm API?")
        return keys

    def heartbeat(self, device_id: str, body: Mapping[str, Any]) -> str:
        """Send a heartbeat; return why the farm gives the device no work, by its state and its reason, empty if it does."""
        device = self._post(f"/v1/devices/{quote(device_id, safe='')}/heartbeat", body)
        self.renewal_is_due = device.get("renew_credential") is True
        state, reason = (clean(str(device.get(name) or ""), 300) for name in ("state", "reason"))
        return f"{state}: {reason}" if reason else ""

    def renew(self) -> str:
        """Return the successor of the device's credential; `use` it once it is stored."""
        key = self._post("/v1/devices/credential", {}).get("api_key")
        if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not key:
            raise TransientError("the API's response lacks an api_key: is it a tunefarm API?")
        return key

    def use(self, api_key: str) -> None:
        """Use this key from now on."""
        self._http.headers["Authorization"] = f"Bearer {api_key}"
        self.renewal_is_due = False

    def close(self) -> None:
        self._http.close()

    def _post(
        self, path: str, body: Mapping[str, Any], *, timeout: httpx.Timeout | None = None
    ) -> Mapping[str, Any]:
        try:
            response = self._http.post(path, json=body, timeout=timeout or self._http.timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TransientError(
                f"the API does not answer: {clean(str(error) or type(error).__name__, 300)}",
                was_sent=isinstance(error, httpx.HTTPError) and not isinstance(error, _UNSENT),
            ) from error
        if response.is_success:
            try:
                answer = response.json() if response.content else {}
            except ValueError as error:
                raise TransientError("the API's response is not JSON: is it a tunefarm API?") from error
            return answer if isinstance(answer, dict) else {}
        detail = clean(_detail(response), 500)
        status = response.status_code
        if status == httpx.codes.NOT_FOUND:
            raise NotFoundError(f"the API did not find it: {detail}")
        if status >= 500 or status in _NOT_NOW or response.is_redirect:
            raise TransientError(f"the API answers {status}: {detail}")
        raise InvalidInputError(f"the API refuses ({status}): {detail}", code="refused", status=status)


def _detail(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return str(problem.get("detail") or problem.get("title") or problem)
    except (ValueError, AttributeError):
        return response.text[:500]

"""schemathesis walks the OpenAPI description: no 5xx, no undocumented status, every answer fits its schema.

Each operation is tested by itself, and each test proves that it got there: a good request, made of the documented example,
must be answered with a 2xx. An operation that is new needs an example, and where it uses something up an entry in `World`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from api_server import ApiServer, api_server
from api_world import Good, World
from app_farm import make_farm
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tunefarm_api.app import create_app
from tunefarm_api.errors.problem_kinds import PROBLEM_KINDS, URN
from tunefarm_api.openapi import describe
from tunefarm_app.identity.authority import ensure_authority
from tunefarm_app.identity.signing import create_signing_key
from tunefarm_app.settings import Settings, load_settings

DEEPER = int(os.environ.get("TUNEFARM_WALK_DEEPER", "0"))
"""So many times as many requests, drawn anew each time; 0 draws the same few in every run."""
EXAMPLES = 30 * max(1, DEEPER)
SCENARIOS = 6 * max(1, DEEPER)
STEPS = 12
LIMITS = settings(
    deadline=None,
    database=None,
    derandomize=not DEEPER,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
WHO = ("admin",) * 8 + ("write", "read", "device", "nobody", "stranger")


def _document() -> dict[str, Any]:
    app = create_app(
        load_settings(database_url="sqlite://", broker_url="redis://localhost", store_dir=Path("store"))
    )
    document = copy.deepcopy(describe(app))
    # Keys are drawn here: schemathesis would draw nonsense in their place.
    document["components"].pop("securitySchemes")
    for item in document["paths"].values():
        for operation in item.values():
            operation.pop("security", None)
    return document


DOCUMENT = _document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}


@schemathesis.serializer("application/offset+octet-stream", "application/jsonl")
def part_of_a_file(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Walker:
    """Sends cases to the server, and checks the answers."""

    def __init__(self, world: World, server: ApiServer) -> None:
        self.world = world
        self.url, self._faults = server.url, server.faults
        self.session = requests.Session()
        self.told = ""
        """The last request and its answer."""

    def headers(self, who: str) -> dict[str, str]:
        if who == "nobody":
            return {}
        return {"Authorization": f"Bearer {self.world.keys.get(who, who)}"}

    def send(self, case: Any, who: str, checks: list[CheckFunction]) -> int:
        answer = case.call(base_url=self.url, session=self.session, headers=self.headers(who), timeout=60)
        self.check(case, answer, checks)
        return int(answer.status_code)

    def check(self, case: Any, answer: Any, checks: list[CheckFunction]) -> None:
        self.told = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:1000]}"
        assert answer.status_code < 500, f"{self.told}\n{''.join(self._faults[-1:])[-1000:]}"
        if answer.status_code != 405:  # the path is another one, of an operation that the request is not of
            case.validate_response(answer, checks=checks)
        if answer.status_code >= 400:
            document = answer.json()
            assert document["type"] == f"{URN}{document['code']}", self.told
            assert PROBLEM_KINDS[document["code"]].status == answer.status_code, self.told


CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    folder = tmp_path_factory.mktemp("farm")
    create_signing_key(folder / "signing" / "key.pem")
    farm = make_farm(
        Settings(
            database_url=f"sqlite:///{folder / 'farm.db'}",
            broker_url="redis://127.0.0.1:1/0",
            store_dir=folder / "store",
            max_upload_bytes=100_000,
            max_samples_bytes=100_000,
            key_rate="",  # a fast machine asks more than 6,000 times a minute
            gateway="127.0.0.1:9443",
            gateway_dir=folder / "gateway",
            signing_key=folder / "signing" / "key.pem",
        )
    )
    ensure_authority(folder / "gateway")
    with api_server(farm) as server:
        yield Walker(World(farm), server)
    farm.services.close()


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    definition: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return definition


def good_case(label: str, world: World, good: Good) -> Any:
    """Return the request that the documentation would have one make."""
    operation = OPERATIONS[label]
    raw = operation.definition.raw
    known = {**world.known, **good.known}
    names = [parameter["name"] for parameter in raw.get("parameters", ()) if parameter["in"] == "path"]
    parts: dict[str, Any] = {"path_parameters": {name: known[name] for name in names}}
    if "requestBody" in raw:
        (media_type, content), *_ = raw["requestBody"]["content"].items()
        body = good.body
        if body is None:
            (example, *_) = resolved(content["schema"]).get("examples") or [{}]
            body = {name: known.get(name, value) for name, value in example.items()}
        parts |= {"body": body, "media_type": media_type}
    return operation.Case(**parts, headers=good.headers, query=good.query)


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_good_request_gets_there(walker: Walker, label: str) -> None:
    good = walker.world.good(OPERATIONS[label].definition.raw["operationId"])
    status = walker.send(good_case(label, walker.world, good), good.key or "admin", CHECKS)
    assert 200 <= status < 300, walker.told


@pytest.mark.matrix(every=8, each_value=False)
@pytest.mark.parametrize("label", OPERATIONS)
def test_any_request(walker: Walker, label: str) -> None:
    operation = OPERATIONS[label]
    world = walker.world
    good = world.good(operation.definition.raw["operationId"])
    known = {**world.known, **good.known}
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
    raw = operation.definition.raw
    negative = st.nothing()
    if "requestBody" in raw or raw.get("parameters"):
        negative = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @given(
        case=cases | negative,
        who=st.sampled_from((*WHO, good.key) if good.key else WHO),
        use_known=st.sampled_from([True, True, True, False]),
    )
    @settings(
        LIMITS,
        max_examples=EXAMPLES if "requestBody" in raw or raw.get("parameters") else len({*WHO}),
    )
    def walk(case: Any, who: str, use_known: bool) -> None:
        checks = CHECKS
        if use_known:
            for container in (case.path_parameters, case.query, case.body):
                if isinstance(container, dict):
                    container |= {name: value for name, value in known.items() if name in container}
        else:
            checks = [*CHECKS, negative_data_rejection]
        walker.send(case, who, checks)

    walk()


def test_one_answer_leads_to_the_next_request(walker: Walker) -> None:
    """Ids of answers go into requests: schemathesis finds these links by itself."""
    reached: set[str] = set()

    class Walk(SCHEMA.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"base_url": walker.url, "session": walker.session, "headers": walker.headers("admin")}

        def validate_response(self, response: Any, case: Any, *_args: Any, **_kwargs: Any) -> None:
            reached.add(case.operation.label)
            walker.check(case, response, CHECKS)

    Walk.run(settings=settings(LIMITS, max_examples=SCENARIOS, stateful_step_count=STEPS))
    assert reached


def test_nothing_that_is_too_large(walker: Walker) -> None:
    for label, operation in OPERATIONS.items():
        body = operation.definition.raw.get("requestBody")
        if body:
            (media_type, _content), *_ = body["content"].items()
            size = (65 << 20) if label == "POST /v1/records" else 2_000_000
            case = good_case(label, walker.world, Good(body=b" " * size))
            answer = requests.request(
                case.method,
                walker.url + case.formatted_path,
                data=case.body,
                headers={**walker.headers("admin"), "Content-Type": media_type},
                timeout=60,
            )
            assert answer.status_code == 413, label
            walker.check(case, schemathesis.Response.from_any(answer), CHECKS)


def test_every_change_can_meet_a_full_disk() -> None:
    for label, operation in OPERATIONS.items():
        documented = operation.definition.raw["responses"]
        assert ("507" in documented) is (operation.method != "get"), label
        assert "421" in documented, label

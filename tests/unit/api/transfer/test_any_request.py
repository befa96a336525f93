"""Arbitrary requests, checked against the API's description: none breaks it, and answers are as described."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_mutations import ODD_TEXTS, SCALARS, mutated
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from tunefarm_api.openapi import describe
from tunefarm_app.runtime.composition import Services

TEXTS = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=8), SCALARS.map(str))
LIKELY = ("ok", "1", "1-1", f"{'9' * 18}-0", "cpu", f"rec_{'0' * 26}", f"job_{'z' * 26}")
ALWAYS = {"405", "413"}
"""What the framework's own refusals answer with, on any path."""


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


class Caller:
    """Draws a request to an operation, sends it, and checks the answer against the description."""

    def __init__(self, client: TestClient, document: dict[str, Any], known: dict[str, str]) -> None:
        self.client = client
        self.document = document
        self.known = known
        self.operations = [
            (method, path, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
        ]

    def schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {**schema, "components": self.document["components"]}

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self.document["components"]["schemas"][name] if name else schema

    def call(self, data: st.DataObject) -> None:
        method, path, operation = data.draw(st.sampled_from(self.operations), label="operation")
        query, headers = [], {}
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            if parameter["in"] == "path":
                # Later requests cannot use deleted objects.
                known = self.known.get("deletable" if method == "delete" else name)
                mostly_known = st.sampled_from([known] * 3) if known else st.nothing()
                path = path.replace(f"{{{name}}}", quoted(data.draw(mostly_known | TEXTS.filter(bool))))
            elif parameter["in"] == "query" and data.draw(st.booleans()):
                choices = self.resolved(parameter["schema"]).get("enum") or [*LIKELY, *self.known.values()]
                values = data.draw(st.lists(st.sampled_from(choices) | TEXTS, min_size=1, max_size=2))
                query += [f"{name}={quoted(value)}" for value in values]
            elif parameter["in"] == "header" and data.draw(st.booleans()):
                headers[name] = data.draw(
                    st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=8)
                )
        headers = {name: value.encode("latin-1") for name, value in headers.items()}
        content: bytes | None = None
        if "requestBody" in operation:
            (media_type, body), *_ = operation["requestBody"]["content"].items()
            headers["Content-Type"] = media_type.encode()
            content = data.draw(
                self._json_bodies(body["schema"]) if media_type.endswith("/json") else st.binary(max_size=50)
            )
        url = f"{path}?{'&'.join(query)}" if query else path
        answer = self.client.request(method.upper(), url, headers=headers, content=content)
        self.check(operation, answer, f"{method} {url} {content!r}: {answer.status_code} {answer.text[:500]}")

    def _json_bodies(self, schema: dict[str, Any]) -> st.SearchStrategy[bytes]:
        schema = schema.get("anyOf", [schema])[0]  # a body that may be left out has null as the other choice
        properties = self.resolved(schema)["properties"]
        base = {**self.resolved(schema).get("examples", [{}])[0]}
        base |= {name: value for name, value in self.known.items() if name in base}
        return st.one_of(
            mutated(base, *properties).map(lambda v: json.dumps(v).encode()), st.binary(max_size=8)
        )

    def check(self, operation: dict[str, Any], answer: Any, context: str) -> None:
        assert answer.status_code < 500, context
        documented = operation["responses"]
        status = str(answer.status_code)
        assert status in documented or status in ALWAYS, context
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if answer.status_code >= 400:
            assert media_type == "application/problem+json", context
            assert answer.json()["code"], context
        elif media_type == "application/json":
            schema = documented[status]["content"]["application/json"].get("schema", {})
            errors = list(Draft202012Validator(self.schema(schema)).iter_errors(answer.json()))
            assert not errors, f"{context}\n{errors[0].message}"


@pytest.fixture
def caller(
    app: FastAPI,
    client: TestClient,
    services: Services,
    finished_job: dict[str, Any],
    device: dict[str, Any],
) -> Caller:
    with services.uow.write() as repos:
        other = repos.models.add(name="other", sha256="cd" * 32, size_bytes=9)
        webhook = repos.webhooks.add(url="https://8.8.8.8/", kinds=[], job_id=None, secret="whsec_eA==")
        delivery = repos.deliveries.queue_test(webhook.id)
    known = {
        "job_id": finished_job["id"],
        "model_id": finished_job["model_id"],
        "device_id": device["id"],
        "device_key": device["device_key"],
        "webhook_id": webhook.id,
        "delivery_id": delivery.id,
        "deletable": other.id,
    }
    return Caller(client, describe(app), known)


@pytest.mark.exhaustive
@given(data=st.data())
@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
def test_nothing_breaks_it(caller: Caller, data: st.DataObject) -> None:
    caller.call(data)

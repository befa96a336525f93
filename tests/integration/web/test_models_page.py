from __future__ import annotations

import base64
from typing import Any

import pytest
from page_browser import ORIGIN, Browser, checked

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.job import JobState
from tunefarm_text.job_terms import HELP, NO_SEARCH


def upload(browser: Browser, content: bytes, shapes: str = "", values: str = "", **labels: str):
    """Send a file as the page's script does; return the last answer."""
    fields = {"filename": "net.onnx", "shapes": shapes, "values": values, **labels}
    metadata = ",".join(f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in fields.items())
    headers = {"Origin": ORIGIN, "Tus-Resumable": "1.0.0"}
    begin = {**headers, "Upload-Length": str(len(content)), "Upload-Metadata": metadata}
    begun = browser.client.post("/models/uploads", headers=begin)
    if begun.status_code != 201:
        return begun
    path = begun.headers["location"]
    assert path.startswith("/models/uploads/upl_")
    part = {**headers, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    sent = browser.client.patch(path, content=content, headers=part)
    return sent if sent.status_code != 204 else browser.client.get(path)


def url_of(answer) -> str:
    return f"/models/{answer.json()['model_id']}"


def test_tags_and_a_note_come_with_an_upload(browser: Browser, farm) -> None:
    content = Scenario(tasks=1).to_bytes()
    refused = upload(browser, content, tags="no!tag")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-tag")
    for field in ("upload-tags", "upload-note"):
        assert browser.page("/models").element("form", id="upload").all(id=field)
    model_id = upload(browser, content, tags="OCR, customer-7", note="for <us>").json()["model_id"]
    assert (farm.model(model_id).tags, farm.model(model_id).note) == (["ocr", "customer-7"], "for <us>")
    assert upload(browser, content, tags="night").json()["model_id"] == model_id
    assert (farm.model(model_id).tags, farm.model(model_id).note) == (["night"], "for <us>")
    assert upload(browser, content).json()["model_id"] == model_id
    assert farm.model(model_id).tags == ["night"], "an upload without tags leaves them"


def test_a_model_is_uploaded_imported_and_tuned(browser: Browser, farm) -> None:
    farm.add_device()
    answer = upload(browser, Scenario(tasks=2).to_bytes())
    assert answer.status_code == 200
    url = url_of(answer)
    page = browser.page(url)
    assert "importing" in page.element("span", id="state").text
    assert page.all("form", id="new-job") == []
    farm.run()
    page = browser.page(url)
    assert "ready" in page.element("span", id="state").text
    assert "1×8 float32" in page.element("main").text
    form = page.element("form", id="new-job")
    hints = {hint.attrs["id"]: hint.text for hint in form.all("span", class_="hint")}
    assert (hints["target-hint"], hints["precision-hint"]) == (HELP["target"], HELP["precision"])
    assert form.element("option", **{"data-rate": ""}).text == "pool: 1 of 1 online"
    started = browser.post(
        form.attrs["action"],
        minutes="",
        trials="16",
        tuner="random",
        pool="pool",
        seed="7",
        precision=form.element("select", id="precision").all("option")[1].text,
    )
    assert started.url.path.startswith("/jobs/job_")
    job = farm.job(started.url.path.rpartition("/")[2])
    assert (job.budget["trials"], job.budget["wall_sec"], job.seed, job.tuner) == (16, None, 7, "random")
    assert job.options["precision"] == "float16-weights"
    whole = browser.post(form.attrs["action"], minutes="2", search_minutes="0.5", pool="pool", seed="7")
    limits = farm.job(whole.url.path.rpartition("/")[2]).budget
    assert (limits["job_sec"], limits["wall_sec"]) == (120.0, 30.0)
    assert browser.post(f"{whole.url.path}/cancel").status_code == 200
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    again = browser.page(url)
    assert (
        float(
            again.element("form", id="new-job")
            .element("select", id="pool")
            .element("option")
            .attrs["data-rate"]
        )
        > 0
    )
    assert job.id in [row.attrs.get("id") for row in again.all("tr")]
    assert again.element("form", id="new-job").all("input", name="stop_early")


def test_a_model_is_compiled_without_a_search(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    form = browser.page(f"/models/{model.id}").element("form", id="new-job")
    button = form.element("button", name="no_search")
    assert button.text == "Compile without a search"
    assert form.element("span", id="no-search-hint").text == NO_SEARCH
    started = browser.post(
        form.attrs["action"], no_search="1", minutes="10", trials="", pool="pool", seed="0"
    )
    job = farm.job(started.url.path.rpartition("/")[2])
    assert (job.budget, job.options["search"]) == ({}, False)
    page = browser.page(f"/jobs/{job.id}")
    assert "compiled from the records that existed" in page.element("main").text
    assert "Extend" not in page.element("main").text
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    page = browser.page(f"/jobs/{job.id}")
    phases = [phase.text.split()[1].rstrip(":") for phase in page.element("ol", class_="phases").all("li")]
    assert "tune" not in phases
    assert "compile" in phases
    assert page.element("a", href=f"/jobs/{job.id}/artifact").text.startswith("Artifact")


def test_the_list_of_models(browser: Browser, farm) -> None:
    assert "There are no models yet." in browser.page("/models").element("main").text
    for number in range(26):
        with farm.services.uow.write() as repos:
            repos.models.add(name=f"net-{number:02}", sha256=f"{number:064}", size_bytes=1_500_000)
    page = browser.page("/models")
    rows = [row for row in page.all("tr") if "id" in row.attrs]
    assert len(rows) == 25
    assert "net-25" in rows[0].text
    assert "1.5 MB" in rows[0].text
    older = browser.page(page.element("a", rel="next").attrs["href"])
    assert [row.element("a").text for row in older.all("tr") if "id" in row.attrs] == ["net-00"]


def test_uploads_are_refused_with_a_reason(browser: Browser) -> None:
    for content, shapes, status, code in (
        (b"", "", 422, "empty-file"),
        (b"PK\x03\x04zip", "", 422, "not-protobuf"),
        (b"\x08" * 100_001, "", 413, "too-large"),
        (b"\x08\x01", "tokens", 422, "bad-shape"),
    ):
        answer = upload(browser, content, shapes)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_another_sites_page_sends_nothing(browser: Browser) -> None:
    headers = {"Origin": "https://evil.example", "Upload-Length": "9"}
    assert browser.client.post("/models/uploads", headers=headers).status_code == 403
    for method in ("PATCH", "DELETE"):
        answer = browser.client.request(method, "/models/uploads/upl_1", headers=headers)
        assert answer.status_code == 403


def test_an_upload_is_stopped(browser: Browser) -> None:
    headers = {"Origin": ORIGIN, "Upload-Length": "9"}
    path = browser.client.post("/models/uploads", headers=headers).headers["location"]
    assert browser.client.head(path).headers["upload-offset"] == "0"
    assert browser.client.delete(path, headers={"Origin": ORIGIN}).status_code == 204
    assert browser.client.head(path).status_code == 404


def test_shapes_are_part_of_a_model(browser: Browser, farm) -> None:
    content = Scenario().to_bytes()
    urls = {url_of(upload(browser, content, f"x={shape}")) for shape in ("1,8", "2,8", "1,8")}
    assert len(urls) == 2


def test_a_model_that_cannot_be_imported_says_why(browser: Browser, farm) -> None:
    url = url_of(upload(browser, b"\x08 nothing that anybody reads"))
    farm.run_until_quiet()
    page = browser.page(url)
    assert "accepts only scenarios" in page.element(role="alert").text
    assert page.all("form", id="new-job") == []


def test_without_a_device_it_says_so(browser: Browser, farm) -> None:
    model = farm.ready_model()
    form = browser.page(f"/models/{model.id}").element("form", id="new-job")
    assert "No device can measure yet" in form.text
    assert form.all("button") == []


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({}, "invalid-budget"),
        ({"minutes": "0", "trials": "0"}, "invalid-budget"),
        ({"minutes": "soon"}, "invalid-number"),
        ({"trials": "8", "tuner": "guess"}, "unknown-tuner"),
        ({"trials": "8", "pool": "nowhere"}, "unknown-device-key"),
        ({"trials": "8", "target": "toaster"}, "unknown-target"),
        ({"trials": "8", "priority": "urgent"}, "invalid-priority"),
        ({"trials": "8", "precision": "fp16"}, "unknown-precision"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(browser: Browser, farm, form: dict[str, str], code: str) -> None:
    farm.add_device()
    model = farm.ready_model()
    answer = browser.post(f"/models/{model.id}/jobs", **form)
    assert answer.status_code == 422
    assert code in answer.text


def test_a_name_with_a_slash_leads_to_its_page(browser: Browser, farm) -> None:
    model = farm.ready_model(Scenario(tasks=1), name="team/net")
    for path in ("team%2Fnet", "team%2Fnet@1", model.id):
        assert browser.page(f"/models/{path}").element("h1").text == "team/net"
    assert browser.get("/models/team%00net").status_code == 422


def test_a_model_is_deleted_unless_it_is_in_use(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model()
    job = farm.submit(model)
    assert browser.post(f"/models/{model.id}/delete").status_code == 409
    browser.post(f"/jobs/{job.id}/cancel")
    assert browser.post(f"/models/{model.id}/delete").url.path == "/models"
    assert browser.get(f"/models/{model.id}").status_code == 410
    assert browser.page(f"/jobs/{job.id}")


def test_who_may_only_look_uploads_nothing(stranger: Browser, farm) -> None:
    model = farm.ready_model()
    stranger.sign_in(create_api_key(farm.services, name="looks", scopes=["read"])[1])
    assert [form.attrs["action"] for form in stranger.page("/models").all("form")] == [
        "/sign-out",
        "/models",
        "/sign-out",
    ]
    assert [form.attrs["action"] for form in stranger.page(f"/models/{model.id}").all("form")] == [
        "/sign-out",
        "/sign-out",
    ]
    assert stranger.post(f"/models/{model.id}/labels", tags="a").status_code == 403
    assert upload(stranger, b"\x08").status_code == 403
    assert stranger.post(f"/models/{model.id}/delete").status_code == 403


def test_the_code_for_other_shapes_can_be_left_out(browser: Browser, farm) -> None:
    farm.add_device()
    fixed = farm.ready_model()
    assert browser.page(f"/models/{fixed.id}").all("input", name="no_other_shapes") == []
    content = Scenario(tasks=1).to_bytes()
    url = url_of(upload(browser, content, "x=1,8"))
    farm.run()
    form = browser.page(url).element("form", id="new-job")
    box = form.element("input", name="no_other_shapes")
    assert "checked" not in box.attrs
    assert form.element("span", id=box.attrs["aria-describedby"]).text == HELP["other_shapes"]
    for fields, wanted in (({}, True), ({"no_other_shapes": box.attrs["value"]}, False)):
        page = browser.post(form.attrs["action"], trials="8", **fields)
        job = farm.job(page.url.path.rpartition("/")[2])
        assert job.options["other_shapes"] is wanted
        assert ("no code for other shapes" in page.text) is not wanted


def test_the_page_lists_the_sets_of_shapes(browser: Browser, farm) -> None:
    def tensor(name: str, *shape: int) -> dict[str, Any]:
        return {"name": name, "shape": list(shape), "dtype": "float32"}

    with farm.services.uow.write() as repos:
        model = repos.models.add(
            name="net", sha256="1" * 64, size_bytes=1, shapes={"x": "1,3,160:5|320"}, values={}
        )
        sets = [
            {"weight": weight, "inputs": [tensor("x", 1, 3, width)], "outputs": [tensor("y", 1, width // 8)]}
            for weight, width in ((5, 160), (1, 320))
        ]
        repos.models.set_ready(
            model.id,
            inputs=sets[0]["inputs"],
            outputs=sets[0]["outputs"],
            operators=[["Conv", 1]],
            opset=17,
            num_params=9,
            specialisations=sets,
        )
    page = browser.page(f"/models/{model.id}")
    table = next(table for table in page.all("table") if "Sets of shapes" in table.element("caption").text)
    rows = [row.text for row in table.element("tbody").all("tr")]
    assert rows == ["x 1×3×160 y 1×20 5", "x 1×3×320 y 1×40 1"]


def test_values_are_part_of_a_model(browser: Browser, farm) -> None:
    content = Scenario(tasks=1).to_bytes()
    urls = [
        url_of(upload(browser, content, values=values)) for values in ("sr=16000", "sr=8000", "sr=16000", "")
    ]
    assert (urls[0] == urls[2], len(set(urls))) == (True, 3)
    assert browser.page("/models").element("textarea", id="values") is not None
    assert upload(browser, content, values="sr=fast").json()["code"] == "bad-value"


def test_a_model_without_fixed_shapes_says_what_to_do_about_it_in_a_browser(browser: Browser, farm) -> None:
    with farm.services.uow.write() as repos:
        model, other = (
            repos.models.add(name="net", sha256=f"{number:064}", size_bytes=1) for number in (1, 2)
        )
        options = "--shape x=1,3 --value sr=<16000>"
        repos.models.set_failed(
            model.id,
            {
                "code": "unknown-dimension",
                "message": f"n is not fixed; it runs, for example, with: {options}",
                "fields": {"options": options},
            },
        )
        repos.models.set_failed(other.id, {"code": "not-protobuf", "message": "it is a picture"})
    hint = "Shapes of dynamic inputs"
    assert hint in browser.page(f"/models/{model.id}").text
    assert browser.page(f"/models/{model.id}").element("pre", id="options").text == options
    listed = browser.page("/models")
    assert hint in listed.text, "that is what the form calls it"
    assert "n is not fixed" in listed.text
    assert "it runs, for example" not in listed.text, "its options of the command are in the page's form"
    assert [link.text for link in listed.all("a", href=f"/models/{model.id}")] == ["net", "Enter its shapes"]
    assert hint not in browser.page(f"/models/{other.id}").text


def test_the_page_says_what_onnx_runtime_runs(browser: Browser, farm) -> None:
    reason = {"operator": "NonMaxSuppression", "node": "'<nms>'", "reason": "is not supported"}
    kept = {"name": "kept", "shape": [None, 4], "dtype": "float32"}
    operators = [["Gather", 2], ["NonMaxSuppression", 1]]
    part = {"nodes": [8, 9], "inputs": [], "outputs": [kept], "operators": operators, "reasons": [reason]}
    with farm.services.uow.write() as repos:
        model = repos.models.add(name="net", sha256="cd" * 32, size_bytes=9)
        repos.models.set_ready(
            model.id,
            inputs=[{"name": "x", "shape": [1, 3], "dtype": "float32"}],
            outputs=[kept],
            operators=[("Conv", 2)],
            opset=17,
            num_params=1000,
            parts=[part],
        )
    text = browser.page(f"/models/{model.id}").element("main").text
    assert "node '<nms>' (NonMaxSuppression) is not supported" in text
    assert "2 Gather, NonMaxSuppression" in text
    assert "?×4 float32" in text


def test_a_model_with_open_dimensions_is_bound_on_its_page(browser: Browser, farm) -> None:
    url = url_of(upload(browser, Scenario(tasks=1).to_bytes()))
    with farm.services.uow.write() as repos:
        model_id = url.rpartition("/")[2]
        repos.steps.cancel_open(subject_id=model_id)
        proposal = {"shapes": {"tokens": [1, 128], "mask": [1, 128]}, "values": {"sr": 16000}}
        error = {"code": "unknown-dimension", "message": "tokens is open", "fields": {"proposal": proposal}}
        repos.models.set_failed(model_id, error)
    form = browser.page(url).element("form", id="bind")
    assert "a guess, with which ONNX Runtime does not run the network" in form.text
    assert "It cannot be tuned yet:" in browser.page(url).element("p", role="alert").text
    given = {name: form.element("textarea", id=name).text for name in ("shapes", "values")}
    assert given == {"shapes": "tokens=1,128 mask=1,128", "values": "sr=16000"}
    wrong = browser.post(form.attrs["action"], shapes="tokens=1,", values="sr=16000")
    assert wrong.status_code == 422
    page = checked(wrong.text)
    assert page.element("p", id="refused").text.startswith("The shape of input 'tokens' cannot be read")
    assert page.element("textarea", id="shapes").text == "tokens=1,"
    assert browser.get(form.attrs["action"]).url.path == url, "its address leads back to the page"
    open_quote = browser.post(form.attrs["action"], shapes="--shape 'x=1,8", values="")
    assert "bad-shape" in checked(open_quote.text).element("p", id="refused").text
    pasted = "--shape 'x=1,8' --value=sr=8000"  # as an error proposes it
    bound = browser.post(form.attrs["action"], shapes=pasted, values="")
    new_id = bound.url.path.rpartition("/")[2]
    assert new_id != model_id
    assert (farm.model(new_id).shapes, farm.model(new_id).values) == ({"x": [1, 8]}, {"sr": 8000})
    farm.run()
    assert browser.page(bound.url.path).all("form", id="new-job")


def test_tags_and_the_note_of_a_model(browser: Browser, farm) -> None:
    model = farm.ready_model()
    other = farm.ready_model(Scenario(seed=9))
    answer = browser.post(f"/models/{model.id}/labels", tags="OCR, customer-7", note="<b>line</b>")
    assert answer.url.path == f"/models/{model.id}"
    page = browser.page(f"/models/{model.id}")
    assert [link.attrs["href"] for link in page.all("a", class_="tag")] == [
        "/models?tag=ocr",
        "/models?tag=customer-7",
    ]
    assert page.element("p", class_="noted").text == "<b>line</b>"
    for query, expected in (
        ("?tag=ocr", [model.id]),
        ("?tag=none", []),
        ("?text=LINE", [model.id]),
        ("?state=failed", []),
        ("?order=oldest", [model.id, other.id]),
        ("", [other.id, model.id]),
    ):
        rows = [row.attrs["id"] for row in browser.page(f"/models{query}").all("tr") if "id" in row.attrs]
        assert rows == expected, query
    assert "No model matches." in browser.page("/models?tag=none").text
    refused = browser.post(f"/models/{model.id}/labels", tags="<x>", note="kept")
    assert "is not a tag" in refused.text
    form = checked(refused.text).element("form", action=f"/models/{model.id}/labels")
    assert (form.element("input", id="tags").attrs["value"], form.element("textarea").text) == ("<x>", "kept")
    assert browser.get(f"/models/{model.id}/labels").url.path == f"/models/{model.id}"

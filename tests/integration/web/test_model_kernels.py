"""The kernels on a model's page."""

from __future__ import annotations

from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario


def test_kernels_that_several_targets_have_are_listed_once(browser: Browser, farm) -> None:
    """Before, a network with the same kernels for two kinds of CPU had each of them twice."""
    model = farm.ready_model(Scenario(tasks=2))
    with farm.services.uow.read() as repos:
        tasks = repos.models.tasks(model.id)
    both = [(task.workload_key, task.weight) for task in tasks]
    for of_other, header in ((both, []), (both[:1], ["Graph passes"])):
        with farm.services.uow.write() as repos:
            repos.models.set_tasks(
                model.id, pipeline="other", toolchain=tasks[0].toolchain, tasks=of_other, revision=1
            )
        table = browser.page(f"/models/{model.id}").element("div", **{"aria-label": "Kernels to tune"})
        rows = [row.text for row in table.all("tr")]
        assert [row.split()[0] for row in rows[1:]] == ["matmul_1", "matmul_0"]
        assert [column.text for column in table.all("th", scope="col")][4:] == header
    assert rows[1].endswith(f"FLOP {tasks[0].pipeline}")
    assert rows[2].endswith(f"FLOP {tasks[0].pipeline}, other")

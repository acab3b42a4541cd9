"""REST of limits, with a real hub and a real API server."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from jupyter_gpu.model.limits.changes import CHANGES
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu_hub.rules.refusals import REASONS
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import Answer, Program
from .world import HUB, LIMITS, World

pytestmark = pytest.mark.cluster

ANN = {"kind": "User", "name": "ann", "hub": HUB}
NAME = object_name("User", "ann", HUB)
PODS = "/api/v1/namespaces/default/pods"


def test_limit_lives(world: World) -> None:
    """It is created, read, changed, and removed, each time with the version that was seen."""
    api = world.limits
    made = api.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2, "guaranteed": "500m"}})
    assert made.status == 201
    assert made.headers["Location"] == f"/services/gpu/api/v1/limits/{NAME}"
    assert made.json["fields"] == {"max": "2", "guaranteed": "500m"}
    assert made.headers["ETag"] == f'"{made.json["version"]}"'
    assert world.limit(NAME)["spec"] == {"subject": ANN, "max": "2", "guaranteed": "500m"}
    changed = api.gpu(
        "PATCH", f"limits/{NAME}", {"set": {"max": 3, "guaranteed": None}}, {"If-Match": made.headers["ETag"]}
    )
    assert (changed.status, changed.json["fields"]) == (200, {"max": "3"})
    assert changed.json["changed"]["by"] == "service limits"
    world.until_known(NAME, changed.json["version"])
    assert api.gpu("GET", f"limits/{NAME}").json == changed.json
    assert api.gpu("GET", f"limits/{NAME}", None, {"If-None-Match": changed.headers["ETag"]}).status == 304
    gone = api.gpu("DELETE", f"limits/{NAME}", None, {"If-Match": changed.headers["ETag"]})
    assert (gone.status, gone.text) == (204, "")
    until(lambda: api.gpu("GET", f"limits/{NAME}").status == 404, SECONDS)


def test_two_editors_do_not_overwrite_each_other(world: World) -> None:
    """The second one sees both values, and the page can ask what to do."""
    first = world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
    root = world.token("root")
    second = root.gpu("PATCH", f"limits/{NAME}", {"set": {"max": 5}}, {"If-Match": first.headers["ETag"]})
    assert second.status == 200
    late = world.limits.gpu("PATCH", f"limits/{NAME}", {"set": {"max": 9}}, {"If-Match": first.headers["ETag"]})
    assert (late.status, late.json["reason"]) == (409, "Conflict")
    assert "root changed it last" in late.json["message"]
    assert late.json["details"] == {"yours": {"max": 9}, "theirs": {"max": "5"}, "version": second.json["version"]}
    assert world.limits.gpu("DELETE", f"limits/{NAME}", None, {"If-Match": first.headers["ETag"]}).status == 409
    again = world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 1}})
    assert (again.status, again.json["details"]["theirs"]) == (409, {"max": "5"})
    assert world.limit(NAME)["spec"]["max"] == "5"


def write_status(world: World, name: str, used: str) -> None:
    """Write what is used, as the scheduler does."""
    patch = json.dumps({"status": {"used": used}})
    world.plane.kubectl("patch", "gpulimits.jupyter-gpu.io", name, "--subresource=status", "--type=merge", "-p", patch)


def test_status_that_changes_is_no_conflict(world: World) -> None:
    """The scheduler writes what is used into each limit: a version that was seen before that is still good."""
    made = world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
    world.until_known(NAME)
    for used in ("1", "2"):
        write_status(world, NAME, used)
        seen = {"If-Match": made.headers["ETag"]}
        again = world.limits.gpu("PATCH", f"limits/{NAME}", {"set": {"weight": int(used)}}, seen)
        assert again.status == 200, again.text
        made = again
    write_status(world, NAME, "3")
    assert world.limits.gpu("DELETE", f"limits/{NAME}", None, {"If-Match": made.headers["ETag"]}).status == 204


def test_version_must_be_said(world: World) -> None:
    """A change without one could overwrite anything."""
    world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
    world.until_known(NAME)
    assert world.limits.gpu("PATCH", f"limits/{NAME}", {"set": {"max": 3}}).status == 428
    assert world.limits.gpu("DELETE", f"limits/{NAME}").status == 428
    for tag in ("*", '""', '"nonsense"', 'W/"0"'):
        assert world.limits.gpu("PATCH", f"limits/{NAME}", {"set": {"max": 3}}, {"If-Match": tag}).status == 409, tag


def test_changes_are_recorded_with_the_object_and_in_the_log(world: World) -> None:
    """Each change has its author, time, and values before and after; the newest comes first."""
    root = world.token("root")
    before = len(world.service.audit())
    made = root.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
    root.gpu("PATCH", f"limits/{NAME}", {"set": {"max": 1}}, {"If-Match": made.headers["ETag"]})
    recorded = json.loads(world.limit(NAME)["metadata"]["annotations"][CHANGES])
    assert [(item["by"], item.get("from"), item["to"]) for item in recorded] == [
        ("root", None, {"max": "2"}),
        ("root", {"max": "2"}, {"max": "1"}),
    ]
    assert [(line["by"], line["from"], line["to"]) for line in world.service.audit()[before:]] == [
        ("root", None, {"max": "2"}),
        ("root", {"max": "2"}, {"max": "1"}),
    ]
    until(lambda: world.limits.gpu("GET", "audit?search=ann").json["total"] == 2, SECONDS)
    newest = world.limits.gpu("GET", "audit?search=root&size=1&sort=-at").json["items"]
    assert newest[0]["subject"] == ANN


def test_value_that_the_cluster_refuses_is_told_in_its_words(world: World) -> None:
    """Ours come first; what only the API server knows comes as its sentence."""
    assert world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": "tow"}}).status == 400
    nowhere = {"kind": "Namespace", "name": "No_Namespace"}
    refused = world.limits.gpu("POST", "limits", {"subject": nowhere, "set": {"max": 1}})
    assert (refused.status, refused.json["reason"]) == (422, "Unacceptable")
    assert "this is not the name of a namespace" in refused.json["message"]


def test_limits_of_tools_and_the_cap_are_shown_and_locked(world: World) -> None:
    """A change would be undone, and the cap is the cluster's."""
    helm = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
    world.put_limit("helms", metadata=helm, subject={"kind": "Default"}, max=1)
    world.put_limit("top", subject={"kind": "Cap"}, max=8)
    rows = {row["object"]: row for row in world.limits.gpu("GET", "limits").json["items"]}
    assert rows["helms"]["managedBy"] == "Helm"
    for name in ("helms", "top"):
        tag = f'"{rows[name]["version"]}"'
        assert world.limits.gpu("PATCH", f"limits/{name}", {"set": {"max": 2}}, {"If-Match": tag}).status == 403
        assert world.limits.gpu("DELETE", f"limits/{name}", None, {"If-Match": tag}).status == 403
    assert world.limit("top")["spec"]["max"] == 8


def test_service_that_may_not_edit_only_shows(world: World) -> None:
    """The service is read-only if limits are kept in a repository."""
    world.service.restart(edit=False)
    try:
        assert world.limits.gpu("GET", "limits").status == 200
        refused = world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
        assert (refused.status, "elsewhere" in refused.json["message"]) == (403, True)
    finally:
        world.service.restart(edit=True)


def test_many_edits_are_one_request(world: World) -> None:
    """A dry run writes nothing; one edit that is refused does not stop the others."""
    users = [{"kind": "User", "name": f"u{i}", "hub": HUB} for i in range(20)]
    edits = [{"subject": user, "set": {"max": 1}} for user in users]
    edits[3]["set"] = {"max": "tow"}
    edits.append({"subject": {"kind": "Cap"}, "set": {"max": 1}})
    dry = world.limits.gpu("POST", "limits/bulk", {"edits": edits, "dryRun": True}).json
    assert (dry["counts"]["created"], dry["counts"]["refused"]) == (19, 2)
    assert world.kube("GET", LIMITS)["items"] == []
    done = world.limits.gpu("POST", "limits/bulk", {"edits": edits}).json
    assert done["counts"] == dry["counts"]
    assert [item["result"] for item in done["results"][:4]] == ["created", "created", "created", "refused"]
    assert done["results"][3]["error"]["details"] == {"field": "max"}
    until(lambda: world.limits.gpu("GET", "limits").json["total"] == 19, SECONDS)
    removed = [{"subject": user, "set": None} for user in users]
    counts = world.limits.gpu("POST", "limits/bulk", {"edits": removed}).json["counts"]
    assert (counts["removed"], counts["unchanged"]) == (19, 1)


def imported(world: World, text: str, kind: str = "json", **more: bool) -> Answer:
    """Import a document or a table."""
    return world.limits.gpu("POST", "limits/import", {"format": kind, "text": text, **more})


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_export_can_be_imported(world: World, kind: str) -> None:
    """Nothing changes; with other values, only what differs; names of any kind stay as they are."""
    names = ["ann", "Ann", "ünï", "a/b", "=cmd()", "<img onerror>", "x" * 255, "--", "+1", "@SUM(A1)"]
    limits = [{"subject": {"kind": "User", "name": name, "hub": HUB}, "max": "2"} for name in names]
    made = imported(world, json.dumps(limits)).json
    assert {item["result"] for item in made["results"]} == {"created"}
    until(lambda: world.limits.gpu("GET", "limits").json["total"] == len(names), SECONDS)
    exported = world.limits.gpu("GET", f"limits/export?format={kind}")
    assert "attachment" in exported.headers["Content-Disposition"]
    assert ("json" if kind == "json" else "csv") in exported.headers["Content-Type"]
    again = imported(world, exported.text, kind, replace=True).json
    assert again["sentence"] == f"0 added, 0 changed, 0 removed, {len(names)} unchanged."
    assert again["results"] == []
    changed = imported(world, exported.text.replace('"2"', '"5"', 1), kind).json
    assert [item["result"] for item in changed["results"]] == ["changed"]
    for name in names:
        assert world.limits.gpu("GET", f"explain/{quote(name, safe='')}").json["name"] == name


def test_import_is_whole_or_not_at_all(world: World) -> None:
    """A dry run says what would be done, and to whom; a line that is wrong stops all."""
    text = f"kind,name,hub,max\r\nUser,ann,{HUB},1\r\nUser,bob,{HUB},tow\r\n"
    dry = imported(world, text, "csv", dryRun=True)
    assert (dry.status, dry.json["refused"], dry.json["lines"][1]["line"]) == (200, True, 3)
    refused = imported(world, text, "csv")
    assert (refused.status, refused.json["details"]["difference"]["refused"]) == (422, True)
    assert world.kube("GET", LIMITS)["items"] == []
    good = imported(world, text.replace("tow", "2"), "csv", dryRun=True).json
    assert good["sentence"] == "2 added, 0 changed, 0 removed, 0 unchanged."
    assert good["preview"]["sentence"] == "No one loses GPUs."


def test_table_is_searched_sorted_and_paged(world: World) -> None:
    """On the server, with an ETag."""
    limits = [{"subject": {"kind": "User", "name": f"u{i}", "hub": HUB}, "max": str(i)} for i in range(12)]
    imported(world, json.dumps(limits))
    until(lambda: world.limits.gpu("GET", "limits").json["total"] == 12, SECONDS)
    page = world.limits.gpu("GET", "limits?search=U1&sort=-max&size=2&page=1")
    assert [row["subject"]["name"] for row in page.json["items"]] == ["u11", "u10"]
    assert (page.json["total"], page.json["page"], page.json["size"], page.json["problem"]) == (3, 1, 2, None)
    same = world.limits.gpu(
        "GET", "limits?search=U1&sort=-max&size=2&page=1", None, {"If-None-Match": page.headers["ETag"]}
    )
    assert (same.status, same.text) == (304, "")
    assert world.limits.gpu("GET", "limits?page=99").json["items"] == []
    assert world.limits.gpu("GET", "limits?sort=secret").status == 400
    assert world.limits.gpu("GET", "limits?size=501").json["details"] == {"field": "size"}
    assert world.limits.gpu("GET", "limits?size=1&size=2").status == 400
    assert world.limits.gpu("GET", "limits?search=%ff").status == 400


def pod(world: World, name: str, user: str, **notes: str) -> None:
    """Create a pod of a user with these annotations of ours."""
    annotations = {"hub.jupyter.org/username": user, "jupyter-gpu.io/hub": HUB}
    world.kube(
        "POST",
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {**annotations, **{f"jupyter-gpu.io/{key}": text for key, text in notes.items()}},
            },
            "spec": {
                "schedulerName": "nobody",
                "containers": [
                    {"name": "c", "image": "none", "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}},
                ],
            },
        },
    )


def test_users_have_limits_and_use(world: World) -> None:
    """Every user of the hub has a row; the own page and the explanation say the same."""
    world.limits.gpu("POST", "limits", {"subject": {"kind": "Default"}, "set": {"max": 1}})
    world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 3}})
    allocated = json.dumps(
        {"observedGeneration": 1, "shares": [{"uuid": "g", "milli": 1000}], "position": 2, "ticket": 5}
    )
    pod(world, "one", "ann", requested='{"generation":1,"milli":2500}', allocated=allocated)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {}}}
    gpus = [
        {"uuid": uuid, "index": i, "model": "A100", "memory": 2**30, "healthy": True} for i, uuid in enumerate("gh")
    ]
    node["metadata"]["annotations"] = {"jupyter-gpu.io/inventory": json.dumps(gpus)}  # type: ignore[index]
    world.kube("POST", "/api/v1/nodes", node)
    try:
        until(lambda: world.limits.gpu("GET", "cluster").json["total"] == 2000, SECONDS)
        bar = world.limits.gpu("GET", "cluster").json
        assert (bar["owned"], bar["free"], bar["waiting"], bar["problem"]) == (1000, 1000, 1500, None)
        rows = {row["name"]: row for row in world.limits.gpu("GET", "users?sort=-used").json["items"]}
        assert {"ann", "bob", "rita", "root"} <= rows.keys()
        assert next(iter(rows)) == "ann"
        assert (rows["ann"]["limit"]["value"], rows["ann"]["used"], rows["ann"]["waiting"]) == ("3", 1000, 1500)
        assert rows["bob"]["limit"] == {
            "value": "1",
            "source": rows["bob"]["limit"]["source"],
            "sentence": rows["bob"]["limit"]["sentence"],
        }
        assert rows["bob"]["limit"]["sentence"].startswith("the default for everyone")
        me = world.token("ann").gpu("GET", "me").json
        assert me["sentence"].startswith("You may have 3 GPUs, set for you by service limits on ")
        assert "You wait for 1.5 GPUs more, at place 2 in line." in me["sentence"]
        assert (me["pods"][0]["name"], me["pods"][0]["position"], me["hours"]) == ("one", 2, {})
        told = world.limits.gpu("GET", "explain/ann").json
        assert told["sentence"].startswith("ann may have 3 GPUs, set for user ann")
        assert [(item["subject"]["kind"], item["holds"]) for item in told["limits"]] == [
            ("User", True),
            ("Default", False),
        ]
        assert world.limits.gpu("GET", "explain/ann?field=weight").json["limits"][0]["value"] is None
        assert world.limits.gpu("GET", "explain/ann?field=budget").status == 400
        assert world.token("bob").gpu("GET", "explain/ann").status == 403
        assert world.limits.gpu("GET", "me").status == 403
    finally:
        world.kube("DELETE", f"{PODS}/one?gracePeriodSeconds=0")
        world.kube("DELETE", "/api/v1/nodes/n1")


def test_subjects_are_one_table(world: World) -> None:
    """Groups, the default and users stand in one table, which can be searched and narrowed."""
    world.limits.gpu("POST", "limits", {"subject": {"kind": "Group", "name": "ml", "hub": HUB}, "set": {"max": 2}})
    until(lambda: world.limits.gpu("GET", "explain/bob").json["limit"]["value"] == "2", SECONDS)
    rows = world.limits.gpu("GET", "subjects").json["items"]
    kinds = [row["subject"]["kind"] for row in rows]
    assert kinds == sorted(kinds, key=["Default", "Cap", "Group", "Namespace", "User"].index)
    (ml,) = world.limits.gpu("GET", "subjects?kind=Group&search=ML").json["items"]
    assert (ml["limit"]["value"], ml["members"]) == ("2", 2)
    bob = next(row for row in rows if row["subject"].get("name") == "bob")
    assert (bob["limit"]["source"]["kind"], bob["own"]) == ("Group", None)
    assert world.limits.gpu("GET", "subjects?kind=Robot").status == 400
    assert world.token("bob").gpu("GET", "subjects").status == 403


def test_edits_answer_with_the_version_that_they_wrote(world: World) -> None:
    """It is what undoing them is for."""
    body = {"edits": [{"subject": ANN, "set": {"max": 2}, "version": ""}]}
    made = world.limits.gpu("POST", "limits/bulk", body).json["results"][0]
    world.until_known(NAME, made["version"])
    undo = {"edits": [{"subject": ANN, "set": None, "version": made["version"]}]}
    assert world.limits.gpu("POST", "limits/bulk", undo).json["results"][0]["version"] == ""


def test_account_tells_what_holds_now(world: World) -> None:
    """Hours of the day and spent budgets are the scheduler's to know."""
    owner = {"kind": "User", "name": "ann", "hub": HUB}
    accounts = "/apis/jupyter-gpu.io/v1alpha1/gpuaccounts"
    name = object_name("User", "ann", HUB)
    world.kube(
        "POST",
        accounts,
        {
            "apiVersion": "jupyter-gpu.io/v1alpha1",
            "kind": "GpuAccount",
            "metadata": {"name": name},
            "spec": {"owner": owner},
        },
    )
    status = {
        "max": "1",
        "used": "2",
        "source": {"kind": "Default", "part": "hours"},
        "overSince": "2026-05-04T10:00:00Z",
        "hours": {"2026-05-04": "12.5"},
    }
    world.plane.kubectl(
        "patch", "gpuaccount", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )
    try:
        ann = world.token("ann")
        until(lambda: (ann.gpu("GET", "me").json["inForce"] or {}).get("value") == "1", SECONDS)
        me = ann.gpu("GET", "me").json
        lowered = {"edits": [{"subject": ANN, "set": {"max": 1}}], "dryRun": True}
        told = world.limits.gpu("POST", "limits/bulk", lowered).json["preview"]
        assert told["sentence"] == "1 user will lose 1 GPU in 10 minutes."
        assert (me["inForce"]["value"], me["overSince"], me["hours"]) == (
            "1",
            "2026-05-04T10:00:00Z",
            {"2026-05-04": "12.5"},
        )
    finally:
        world.kube("DELETE", f"{accounts}/{name}")


def test_removed_user_is_shown_with_its_limit(world: World) -> None:
    """A limit stays with the name; the table says that the hub knows no such user."""
    world.limits.gpu("POST", "limits", {"subject": {**ANN, "name": "gone"}, "set": {"max": 7}})
    until(lambda: world.limits.gpu("GET", "users?search=gone").json["total"] == 1, SECONDS)
    (row,) = world.limits.gpu("GET", "users?search=gone").json["items"]
    assert (row["known"], row["limit"]["value"]) == (False, "7")


def test_rate_is_limited_for_each_token(world: World) -> None:
    """A client that asks too often waits as long as the answer says; others do not notice."""
    world.service.restart(rate={"perSecond": 1, "burst": 3})
    try:
        bob, ann = world.token("bob"), world.token("ann")
        answers = [bob.gpu("GET", "me") for _ in range(6)]
        assert [answer.status for answer in answers][:3] == [200, 200, 200]
        refused = answers[-1]
        assert (refused.status, refused.json["reason"]) == (429, "TooMany")
        assert ann.gpu("GET", "me").status == 200
        time.sleep(int(refused.headers["Retry-After"]))
        assert bob.gpu("GET", "me").status == 200
    finally:
        world.service.restart(rate={"perSecond": 1000, "burst": 10000})


def test_tokens_that_nobody_knows_are_limited_together(world: World) -> None:
    """Each of them has the hub asked: a flood of new ones must not reach it."""

    def status(number: int) -> int:
        return Program(world.address, f"nobody-{number}").gpu("GET", "me").status

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(status, range(120)))
    assert set(found) == {403, 429}
    world.service.restart()


def test_body_is_limited(world: World) -> None:
    """A body that is too large is refused, however it is sent, and the service goes on."""
    api = "/services/gpu/api/v1/"
    large = b'{"subject": {}, "set": {"max": "' + b" " * 100_000 + b'"}}'
    assert world.limits.send("POST", f"{api}limits", data=large).status == 413
    assert world.limits.send("POST", f"{api}limits", data=b"[" * 50_000).status == 400
    assert world.limits.send("POST", f"{api}limits", data=b"{").status == 400
    assert world.limits.send("POST", f"{api}limits", data=b'{"a": 1, "a": 2}').status == 400
    assert world.limits.gpu("GET", "limits").status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "limits", 405),
        ("DELETE", "limits", 405),
        ("POST", "me", 405),
        ("GET", "limits/bulk", 405),
        ("GET", "nothing", 404),
        ("GET", "limits/nothing", 404),
        ("GET", "explain/", 404),
        ("GET", "me?x=1", 400),
    ],
)
def test_other_addresses_and_methods_are_errors_in_json(world: World, method: str, path: str, status: int) -> None:
    """Each with a sentence."""
    answer = world.token("root").gpu(method, path)
    assert (answer.status, answer.json["reason"]) == (status, REASONS[status])
    assert status != 405 or answer.headers["Allow"]


def test_writes_of_the_same_limit_at_once_keep_one_of_them(world: World) -> None:
    """Ten clients write for the same version: one wins, and nine see the other value."""
    made = world.limits.gpu("POST", "limits", {"subject": ANN, "set": {"max": 0}})
    world.until_known(NAME, made.json["version"])
    tag = {"If-Match": made.headers["ETag"]}
    with ThreadPoolExecutor(10) as pool:
        found = list(
            pool.map(lambda i: world.limits.gpu("PATCH", f"limits/{NAME}", {"set": {"max": i}}, tag), range(1, 11))
        )
    assert sorted(answer.status for answer in found) == [200, *[409] * 9]
    won = next(answer for answer in found if answer.status == 200)
    assert world.limit(NAME)["spec"]["max"] == won.json["fields"]["max"]

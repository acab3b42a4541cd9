"""Specs of limits: those that the API server takes, and those that it refuses, with its words."""

from typing import Any

AMOUNT = 'this is not an amount of GPUs: write 2, "0.5" or 500m, from 0 to 1000 in steps of 0.001'
MEMORY = "this is not an amount of memory: write bytes, or text such as 40Gi or 500M, below 8Pi, or unlimited"
IDLE = "this is not a duration from 1m to 8784h: write 30m, 4h or 1h30m, or unlimited"
GRACE = "this is not a duration up to 8784h: write 10m, 4h or 1h30m; 0s is none"
BUDGET = 'this is not a number of GPU-hours: write 100 or "0.5", at most 10000000, or unlimited'
FROM = 'this is not a time of the day: write it as "08:00", from "00:00" to "23:59"'
TO = 'this is not a time of the day: write it as "18:00", from "00:00" to "24:00"'
NAMED = "kinds User, Group and Namespace need a name; kinds Default and Cap have none"
NAMESPACE = "this is not the name of a namespace: it has at most 63 lower-case letters, digits and -"
HUBLESS = "only kinds User and Group have a hub"
CONTROL = "a name has no control characters"
DAY: dict[str, Any] = {"from": "08:00", "to": "18:00", "max": 1}
ODD = ("ünï", "a/b", "Ann", "--", "<img src=x onerror=alert(1)>", "=cmd()", "a.b@c.org", "x" * 255, "日本", "a b", " ")
NAMES = ("ann", *ODD)
"""Names of users and groups that are taken as they are."""

AMOUNTS: tuple[Any, ...] = (0, 2, 1000, "0", "2", "0.5", "0.125", "500m", "1m", "1000000m", "1000", "unlimited")
NO_AMOUNTS: tuple[Any, ...] = (
    *(-1, 1001, "-1", "+1", "", "soon", "two", "1001", "1000.001", "1000001m", "0.0005", "1.5m", ".5", "5."),
    *("1k", "1Ki", "1e3", "1E3", "1n", "1u", " 1", "1 ", "Unlimited", "unlimited1", "1,5", "0x1", "inf", "NaN"),
)


def good() -> list[dict[str, Any]]:
    """Return specs that are taken, without their subjects."""
    hours = [DAY, {**DAY, "days": ["Sat", "Sun"], "from": "22:00", "to": "06:00"}, {**DAY, "to": "24:00"}]
    found: list[dict[str, Any]] = [
        {},
        *({"max": amount} for amount in AMOUNTS),
        *({"guaranteed": amount} for amount in AMOUNTS[:-1]),
        *({"models": [{"model": "A100", "max": amount}]} for amount in AMOUNTS),
        *({"hours": [{**DAY, "max": amount}]} for amount in AMOUNTS),
        *({"guaranteed": low, "max": high} for low, high in ((1, 1), ("0.7", "700m"), ("500m", 1), (5, "unlimited"))),
        *({"memory": memory} for memory in (0, 42949672960, "0", "1", "40Gi", "500M", "1.5Gi", "8191Ti", "unlimited")),
        *({"idleTimeout": text} for text in ("1m", "60s", "4h", "1h30m10s", "8784h", "unlimited")),
        *({"grace": text} for text in ("0s", "10m", "1h30m", "8784h")),
        *(
            {"budget": {"gpuHours": n, "window": "Month"}}
            for n in (0, 100, "0.5", "0.3333333333", "unlimited", 10000000)
        ),
        *({"budget": {"gpuHours": 1, "window": window}} for window in ("Day", "Week", "Month")),
        *({"weight": weight} for weight in (1, 1000)),
        *({"priority": {"max": priority}} for priority in (0, 9)),
        *({"remote": remote} for remote in (True, False)),
        {"lendable": True},
        {"hours": []},
        {"hours": hours},
        {"models": [{"model": f"model {number}", "max": number} for number in range(10)]},
        {"hours": [DAY] * 10},
    ]
    return found


def bad() -> list[tuple[dict[str, Any], str, str]]:
    """Return specs without their subjects, the field that is wrong, and what the API server says of it."""
    twice = [{"model": "A100", "max": 1}] * 2
    return [
        *(({"max": amount}, "spec.max", f"{AMOUNT}, or unlimited") for amount in NO_AMOUNTS),
        *(({"guaranteed": amount}, "spec.guaranteed", AMOUNT) for amount in (*NO_AMOUNTS, "unlimited")),
        *(
            ({"models": [{"model": "T4", "max": m}]}, "spec.models[0].max", f"{AMOUNT}, or unlimited")
            for m in NO_AMOUNTS
        ),
        *(({"hours": [{**DAY, "max": m}]}, "spec.hours[0].max", f"{AMOUNT}, or unlimited") for m in NO_AMOUNTS),
        *(
            ({"guaranteed": low, "max": high}, "spec.guaranteed", "guaranteed must not be more than max")
            for low, high in ((2, 1), ("0.501", "500m"), (1, 0), ("1", "0.999"))
        ),
        *(
            ({"memory": m}, "spec.memory", MEMORY)
            for m in (-1, 2**53, "40GiB", "40 Gi", "40k", "1.5", "8Pi", "much", "")
        ),
        *(
            ({"idleTimeout": t}, "spec.idleTimeout", IDLE)
            for t in ("59s", "0s", "soon", "", "4", "1d", "8785h", "-4h", "1.5h")
        ),
        *(({"idleTimeout": t}, "spec.idleTimeout", IDLE) for t in ("99999h99999h99999h", "1h 30m")),
        *(({"grace": text}, "spec.grace", GRACE) for text in ("soon", "10", "-1m", "8785h", "unlimited", "")),
        *(
            ({"budget": {"gpuHours": n, "window": "Day"}}, "spec.budget.gpuHours", BUDGET)
            for n in (-1, 10000001, "10000000.1", "-1", "many", "", "1k", "1e3")
        ),
        *(
            ({"hours": [{**DAY, "from": t}]}, "spec.hours[0].from", FROM)
            for t in ("8:00", "24:00", "08:60", "0800", "8", "")
        ),
        *(({"hours": [{**DAY, "to": t}]}, "spec.hours[0].to", TO) for t in ("8:00", "24:01", "25:00", "evening", "")),
        ({"hours": [{**DAY, "to": "08:00"}]}, "spec.hours[0].to", "from and to must differ"),
        ({"hours": [{**DAY, "days": ["Mon", "Mon"]}]}, "spec.hours[0].days[1]", 'Duplicate value: "Mon"'),
        ({"hours": [{**DAY, "days": ["Monday"]}]}, "spec.hours[0].days[0]", 'Unsupported value: "Monday"'),
        ({"hours": [{**DAY, "days": []}]}, "spec.hours[0].days", "should have at least 1 items"),
        ({"hours": [DAY] * 11}, "spec.hours", "must have at most 10 items"),
        (
            {"models": [{"model": "-", "max": 1}]},
            "spec.models[0].model",
            "a model needs a letter or a digit, such as A100",
        ),
        ({"models": twice}, "spec.models[1]", 'Duplicate value: {"model":"A100"}'),
        ({"models": [{"max": 1}]}, "spec.models[0].model", "Required value"),
        ({"budget": {"gpuHours": 1}}, "spec.budget.window", "Required value"),
        ({"budget": {"gpuHours": 1, "window": "Year"}}, "spec.budget.window", 'Unsupported value: "Year"'),
        ({"weight": 0}, "spec.weight", "should be greater than or equal to 1"),
        ({"weight": 1001}, "spec.weight", "should be less than or equal to 1000"),
        ({"weight": "1"}, "spec.weight", "must be of type integer"),
        ({"priority": {"max": 10}}, "spec.priority.max", "should be less than or equal to 9"),
        ({"priority": {"max": -1}}, "spec.priority.max", "should be greater than or equal to 0"),
        ({"max": 0.5}, "spec.max", "must be of type integer,string"),
        ({"max": True}, "spec.max", "must be of type integer,string"),
        ({"remote": "yes"}, "spec.remote", "must be of type boolean"),
        ({"lendable": 1}, "spec.lendable", "must be of type boolean"),
    ]


SUBJECTS: tuple[dict[str, str], ...] = (
    {"kind": "Default"},
    {"kind": "Cap"},
    {"kind": "Namespace", "name": "team-1"},
    {"kind": "Group", "name": "ml"},
    *({"kind": "User", "name": name} for name in NAMES),
    {"kind": "User", "name": "ann", "hub": "jhub"},
    {"kind": "Group", "name": "ml", "hub": "h" * 255},
)
NO_SUBJECTS: tuple[tuple[dict[str, str], str, str], ...] = (
    *(({"kind": kind}, "spec.subject", NAMED) for kind in ("User", "Group", "Namespace")),
    *(({"kind": kind, "name": "ann"}, "spec.subject", NAMED) for kind in ("Default", "Cap")),
    *(({"kind": kind, "hub": "jhub"}, "spec.subject.hub", HUBLESS) for kind in ("Default", "Cap")),
    ({"kind": "Namespace", "name": "a", "hub": "jhub"}, "spec.subject.hub", HUBLESS),
    *(
        ({"kind": "Namespace", "name": name}, "spec.subject.name", NAMESPACE)
        for name in ("A", "a_b", "-a", "a.b", "x" * 64)
    ),
    *(({"kind": "User", "name": name}, "spec.subject.name", CONTROL) for name in ("a\nb", "a\x00b", "\t", "\x7f")),
    ({"kind": "User", "name": "ann", "hub": "a\nb"}, "spec.subject.hub", CONTROL),
    ({"kind": "User", "name": "x" * 256}, "spec.subject.name", "may not be more than 255"),
    ({"kind": "User", "name": ""}, "spec.subject.name", "should be at least 1 chars long"),
    ({"kind": "Person", "name": "ann"}, "spec.subject.kind", 'Unsupported value: "Person"'),
    ({"name": "ann"}, "spec.subject.kind", "Required value"),
)

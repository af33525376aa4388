#!/usr/bin/python3
"""dashboard.py DASHBOARD metrics URL | queries PROMETHEUS | plans URL PAGE: holds the Grafana dashboard to what it is made of.

metrics: every metric that it names is one of the running daemon's /metrics.
queries: a Prometheus answers each of its queries, without error and with numbers; waits up to a minute for them.
plans:   the table of the Infinity data source finds every column in the daemon's answer, in the type that it says, and
         the page that describes it has the same.
self-test: that each of these finds what is wrong.
"""
import copy
import datetime
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

VARIABLES = {"$instance": ".*", "$__rate_interval": "10s", "$__range": "1m"}


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()


def targets(dashboard, kind):
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            if target["datasource"]["type"] == kind:
                yield panel["title"], target


def expressions(dashboard):
    for title, target in targets(dashboard, "prometheus"):
        yield title, target["expr"]


# --- metrics


def families(text):
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M):
        names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


def unknown_metrics(dashboard, text):
    known = families(text)
    for title, expression in expressions(dashboard):
        for name in re.findall(r"\b(?:blueprint|process)_\w+", expression):
            if name not in known:
                yield f"{title}: there is no metric {name}"


# --- queries


def ask(prometheus, expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    answer = json.loads(fetch(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    if answer["status"] != "success":
        return f"{answer.get('error')}"
    numbers = [float(row["value"][1]) for row in answer["data"]["result"]]
    return None if any(math.isfinite(number) for number in numbers) else "no data"


def failed_queries(dashboard, prometheus, seconds):
    open_ones = list(expressions(dashboard))
    deadline = time.monotonic() + seconds
    while True:
        found = [(title, expression, ask(prometheus, expression)) for title, expression in open_ones]
        open_ones = [(title, expression) for title, expression, wrong in found if wrong]
        if not open_ones or time.monotonic() > deadline:
            return [f"{title}: {wrong}: {expression}" for title, expression, wrong in found if wrong]
        time.sleep(1)


# --- plans


def select(row, selector):
    for key in selector.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row


def is_of(kind, value):
    if kind == "number":
        return isinstance(value, int) or (isinstance(value, str) and value.isdecimal())
    if kind == "timestamp":
        return isinstance(value, str) and datetime.datetime.fromisoformat(value.replace("Z", "+00:00")) is not None
    return isinstance(value, str)


def wrong_columns(dashboard, url):
    n = 0
    for title, target in targets(dashboard, "yesoreyeram-infinity-datasource"):
        n += 1
        rows = json.loads(fetch(target["url"].replace("${blueprintd}", url)))[target["root_selector"]]
        if not rows:
            yield f"{title}: no rows"
        for column in target["columns"]:
            values = [select(row, column["selector"]) for row in rows]
            if not any(value is not None for value in values):
                yield f"{title}: no row has {column['selector']}"
            for value in values:
                if value is not None and not is_of(column["type"], value):
                    yield f"{title}: {column['selector']} is no {column['type']}: {value}"
    if n == 0:
        yield "there is no table of plans"


def unwritten_columns(dashboard, page):
    """The columns that docs/operating.md gives for each type are the dashboard's."""
    for title, target in targets(dashboard, "yesoreyeram-infinity-datasource"):
        for kind in ("string", "number", "timestamp"):
            columns = [column["selector"] for column in target["columns"] if column["type"] == kind]
            if f"| Columns of type {kind} | " + ", ".join(f"`{name}`" for name in columns) + " |" not in page:
                yield f"{title}: the columns of type {kind} are not those of the page"


# --- self-test


def changed(dashboard, change):
    other = copy.deepcopy(dashboard)
    change(other)
    return other


def self_test(dashboard, prometheus, url):
    def name_a_metric(other):
        other["panels"][2]["targets"][0]["expr"] += " + blueprint_nothing_total"

    def break_a_query(other):
        other["panels"][2]["targets"][0]["expr"] = "sum by ("

    def ask_for_nothing(other):
        other["panels"][2]["targets"][0]["expr"] = 'blueprint_build_info{version="none"}'

    def select_nothing(other):
        other["panels"][-1]["targets"][0]["columns"].append({"selector": "model.size", "text": "", "type": "number"})

    def mistake_a_type(other):
        other["panels"][-1]["targets"][0]["columns"][0]["type"] = "number"

    def lose_the_table(other):
        other["panels"].pop()

    assert list(unwritten_columns(dashboard, "| Columns of type string | `id` |")), "an undescribed column is not seen"
    text = fetch(f"{url}/metrics")
    assert list(unknown_metrics(changed(dashboard, name_a_metric), text)), "an unknown metric is not seen"
    assert failed_queries(changed(dashboard, break_a_query), prometheus, 0), "a broken query is not seen"
    assert failed_queries(changed(dashboard, ask_for_nothing), prometheus, 0), "a query without data is not seen"
    for change in (select_nothing, mistake_a_type, lose_the_table):
        assert list(wrong_columns(changed(dashboard, change), url)), f"{change.__name__} is not seen"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    assert len(list(expressions(dashboard))) > 30
    what, arguments = sys.argv[2], sys.argv[3:]
    wrong = []
    if what == "metrics":
        wrong = list(unknown_metrics(dashboard, fetch(f"{arguments[0]}/metrics")))
    elif what == "queries":
        wrong = failed_queries(dashboard, arguments[0], 60)
    elif what == "plans":
        with open(arguments[1], encoding="utf-8") as page:
            wrong = list(wrong_columns(dashboard, arguments[0])) + list(unwritten_columns(dashboard, page.read()))
    elif what == "self-test":
        self_test(dashboard, *arguments)
    else:
        sys.exit(__doc__)
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


main()

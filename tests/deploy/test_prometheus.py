#!/usr/bin/env python3
# test_prometheus.py - metrics, alert rules and dashboard fit together, as promtool sees them.
"""Usage: test_prometheus.py API_SERVER SOURCE"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

METRIC = re.compile(r"\bthinwire_[a-z_]+")


def promtool(*words, text=None):
    """Output of promtool, which must find nothing wrong."""
    done = subprocess.run(["promtool", *words], input=text, text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def scrape(server, folder):
    """The metrics of a node that has everything."""
    socket = folder / "api.sock"
    with subprocess.Popen([server, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        assert node.stdout.readline() == b"ready\n"
        done = subprocess.run(["curl", "-sS", "--unix-socket", socket,
                               "http://localhost/metrics"], capture_output=True, text=True,
                              check=True)
        node.stdin.close()
    return done.stdout


def names_of(source):
    """All names of metrics in metrics.c and view_status.c, those that the sample lacks included."""
    api = source / "daemon" / "api"
    text = (api / "metrics.c").read_text(encoding="utf-8")
    rows = (api / "view_status.c").read_text(encoding="utf-8")
    names = re.findall(r'put_(?:head|gauge|total|time)\(\s*to,\s*"([a-z_]+)"', text)
    names += re.findall(r'METRIC\("\w+",\s*[\w.]+,\s*\w+,\s*"([a-z_]+)"', rows)
    return {f"thinwire_{name}" for name in names}


def check_rules(source, known):
    """Rules are right, each alert has a test, each metric exists."""
    path = source / "deploy" / "prometheus" / "thinwire.rules.yml"
    tests = pathlib.Path(__file__).resolve().parent / "thinwire_rules_test.yml"
    promtool("check", "rules", str(path))
    promtool("test", "rules", str(tests))
    text = path.read_text(encoding="utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", text))
    tested = set(re.findall(r"alertname: (\w+)", tests.read_text(encoding="utf-8")))
    assert alerts == tested and len(alerts) >= 8, alerts ^ tested
    assert set(METRIC.findall(text)) <= known, set(METRIC.findall(text)) - known


def check_dashboard(source, known, folder):
    """Each expression of the dashboard is PromQL about metrics that exist."""
    path = source / "deploy" / "grafana" / "thinwire.json"
    board = json.loads(path.read_text(encoding="utf-8"))
    rules, ids = [], []
    for panel in board["panels"]:
        ids.append(panel["id"])
        assert panel["targets"] and panel["title"] and panel["datasource"]["uid"] == "${source}"
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", "5m").replace("$node", ".*")
            assert "$" not in expr, expr
            assert METRIC.search(expr) and set(METRIC.findall(expr)) <= known, expr
            rules.append({"record": f"test:{panel['id']}{target['refId']}", "expr": expr})
    assert len(ids) == len(set(ids)) and len(ids) <= 12, ids
    (query,) = [var["query"] for var in board["templating"]["list"] if var["type"] == "query"]
    assert METRIC.search(query)[0] in known, query
    file = folder / "board.yml"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(file))


def main():
    """Runs all checks."""
    for tool in ("promtool", "curl"):
        if shutil.which(tool) is None:
            print(f"{tool} is not installed: skipped")
            sys.exit(77)
    server, source = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="tw_prom_") as temporary:
        folder = pathlib.Path(temporary)
        text = scrape(server, folder)
        said = promtool("check", "metrics", text=text)
        assert said == "", said
        known = names_of(source)
        printed = set(METRIC.findall(re.sub(r"(?m)^#.*|\{[^}]*\}", "", text)))
        assert printed <= known and len(printed) > 50, printed - known
        check_rules(source, known)
        check_dashboard(source, known, folder)
    print("ok")


if __name__ == "__main__":
    main()

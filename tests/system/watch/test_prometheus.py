#!/usr/bin/env python3
# test_prometheus.py - Prometheus of the distribution scrapes three nodes; alerts fire and resolve.
"""Usage: test_prometheus.py BIN SOURCE"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes
import ports

# Durations of the rules, shortened: the same alerts within seconds.
SHORTER = ((r"for: \d+m", "for: 1s"), (r"\[10m\]", "[5s]"), (r"\[1h\]", "[8s]"),
           (r"> 3600", "> 6"))


class Watcher:
    """Prometheus, on a port of its own."""

    def __init__(self, folder, rules, targets):
        for pattern, short in SHORTER:
            rules = re.sub(pattern, short, rules)
        (folder / "rules.yml").write_text(rules, encoding="utf-8")
        config = {"global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
                  "rule_files": [str(folder / "rules.yml")],
                  "scrape_configs": [{"job_name": "thinwire",
                                      "static_configs": [{"targets": targets}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        address = f"127.0.0.1:{ports.hold()}"
        self.url = f"http://{address}"
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ask(self, path):
        """Data of an answer of its API; {} while it starts."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return {}

    def firing(self):
        """{(alert, instance)} that fire now."""
        return {(alert["labels"]["alertname"], alert["labels"].get("instance"))
                for alert in self.ask("alerts").get("alerts", []) if alert["state"] == "firing"}

    def up(self):
        """Number of nodes whose last scrape succeeded."""
        return sum(target["health"] == "up"
                   for target in self.ask("targets").get("activeTargets", []))

    def end(self):
        """Stops it."""
        self.process.terminate()
        self.process.wait(30)


def tw(group, idx, verb, status=0):
    """A command of thinwire about a node."""
    done = subprocess.run([group.tool("thinwire"), verb, "--config", str(group.config(idx))],
                          capture_output=True, text=True, check=False)
    assert done.returncode == status, done


def worker_of(group, idx):
    """Process of a node's worker."""
    done = subprocess.run([group.tool("thinwire"), "status", "--json", "--config",
                           str(group.config(idx))], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["worker"]["pid"]


def check(group, watcher, targets):
    """Alerts that can be made in seconds."""
    def fires(name, idx):
        group.wait(f"{name} of {idx}", lambda: (name, targets[idx]) in watcher.firing())
        print(f"{name} fires", flush=True)

    def resolves(name):
        group.wait(f"the end of {name}", lambda: name not in {row[0] for row in watcher.firing()})
        print(f"{name} resolves", flush=True)

    group.wait("three scrapes", lambda: watcher.up() == 3)
    for name in ("ThinwireAlone", "ThinwireNotTraining"):
        resolves(name)
    assert len(watcher.ask("rules")["groups"][0]["rules"]) >= 8

    # A pause is wanted: it wakes nobody, as workers that stop by themselves do.
    pids = [worker_of(group, idx) for idx in range(3)]
    tw(group, 2, "pause")
    for pid in pids[:2]:
        os.kill(pid, signal.SIGSTOP)
    fires("ThinwireNotTraining", 0)
    fires("ThinwireNoRounds", 1)
    assert not {row for row in watcher.firing() if row[1] == targets[2]}, watcher.firing()
    for pid in pids[:2]:
        os.kill(pid, signal.SIGCONT)
    tw(group, 2, "resume")
    resolves("ThinwireNotTraining")
    resolves("ThinwireNoRounds")

    state = next(group.folder.glob("n0/*/runlog")).parent
    blocked = [state / f"ckpt.{slot}.safetensors" for slot in "ab"]
    for path in blocked:
        path.unlink(missing_ok=True)
        (path / "x").mkdir(parents=True)
    tw(group, 0, "checkpoint", status=1)
    fires("ThinwireWarning", 0)
    for path in blocked:
        shutil.rmtree(path)
    tw(group, 0, "checkpoint")
    resolves("ThinwireWarning")
    fires("ThinwireCheckpointOld", 0)
    tw(group, 0, "checkpoint")
    resolves("ThinwireCheckpointOld")

    group.kill(2)
    fires("ThinwireDown", 2)
    group.kill(1)
    fires("ThinwireAlone", 0)
    group.start(1)
    group.start(2)
    resolves("ThinwireDown")
    resolves("ThinwireAlone")


def main():
    """Three nodes that listen for a scraper."""
    if shutil.which("prometheus") is None:
        print("prometheus is not installed: skipped")
        sys.exit(77)
    rules = pathlib.Path(sys.argv[2]) / "deploy" / "prometheus" / "thinwire.rules.yml"
    with tempfile.TemporaryDirectory(prefix="tw_prom_") as temporary:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), temporary, 3, step_us=20000)
        targets = [f"127.0.0.1:{ports.hold()}" for _ in range(3)]
        for idx, target in enumerate(targets):
            text = group.config(idx).read_text(encoding="ascii")
            changed = re.sub("(?m)^#http = .*", f"http = {target}", text)
            assert changed != text
            group.config(idx).write_text(changed, encoding="ascii")
        watcher = Watcher(group.folder, rules.read_text(encoding="utf-8"), targets)
        try:
            for idx in range(3):
                group.start(idx)
            check(group, watcher, targets)
        finally:
            watcher.end()
            group.end()
    print("ok")


if __name__ == "__main__":
    main()

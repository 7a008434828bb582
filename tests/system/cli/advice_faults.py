"""advice_faults.py - advice about groups and machines in which something broke."""
import json
import re

from advice import situation


def merged(at, *names, more=""):
    """Nodes of one run, started, linked and merging with each other; the last one is selected."""
    first = None
    for name in names:
        _, address = at.node(name, more=more)
        if first:
            at.change(name, r"^\[network\]$", f"[network]\npeers = {first}")
        first = first or address
        at.start(name)
    at.wait("they merge", lambda: at.status()["sync"]["mixed_peers"] == len(names) - 1)


def end_at_once(at, name):
    """kill -9 of a node: its daemon, its worker, and the keeper that would start it again."""
    conf = str(at.folder / name / "node.conf")
    for _ in range(2):
        for pid, words in at.processes():
            if conf in words or words[0].endswith("stub_worker") and \
                    any(f"/{name}/" in word for word in words):
                at.type(f"kill -KILL {pid}")


@situation("faults", "`thinwire rollback` lists it as `undone`")
def anew(at):
    """A node comes back to a run that the others began anew."""
    at.manifest("run", ["sync.nodes=2", "sync.period=5", "sync.overlap=1", "sync.fragments=1",
                        "security.admission=open"])
    merged(at, "a", "b")
    at.good("thinwire checkpoint")
    at.wait("a note of a common round", lambda: re.search(
        "origin (?!0{16})", "".join(path.read_text(encoding="ascii") for path in
                                    (at.folder / "b/state").rglob("reached"))))
    before = at.status()
    at.good("thinwire leave")
    end_at_once(at, "a")
    at.good("rm -f a/state/*/ckpt.*")
    at.start("a")
    clock = before["run"]["clock_tokens"] + 5000  # b trains until it has left
    at.wait("a new run past the old one", lambda: at.status()["run"]["clock_tokens"] > clock)
    at.start("b")
    at.wait("the loss", lambda: "work_lost" in at.warnings())
    listed = at.follow(at.good("thinwire status"), "`thinwire rollback` lists it")
    kept = [row for row in json.loads(at.good("thinwire rollback --json"))["generations"]
            if row["file"] == "undone"]
    assert kept and kept[0]["round"] >= before["checkpoint"]["rounds"], kept
    assert "undone" in listed, listed

#!/usr/bin/env python3
# test_follow.py - `events --follow` and `logs --follow` over a restart of the daemon.
"""Usage: test_follow.py BIN"""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes


class Follower:
    """A command that goes on printing; its lines are kept."""

    def __init__(self, group, *words):
        self.lines, self.notes = [], []
        self.process = subprocess.Popen(
            [group.tool("thinwire"), *words, "--config", str(group.config(0))], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for stream, kept in ((self.process.stdout, self.lines), (self.process.stderr, self.notes)):
            threading.Thread(target=self._read, args=(stream, kept), daemon=True).start()

    @staticmethod
    def _read(stream, kept):
        for line in stream:
            kept.append(line.rstrip("\n"))

    def end(self):
        """Ends it as Ctrl-C does."""
        self.process.send_signal(2)
        self.process.wait(10)


def tw(group, *words):
    """Output of a command about the node."""
    return nodes.run(group.tool("thinwire"), *words, "--config", str(group.config(0)))


def check_events(plain, rows):
    """Each event once, in order, over two starts."""
    events = [json.loads(line) for line in rows.lines]
    boots = sorted({event["boot"] for event in events})
    assert len(boots) == 2 and boots[1] == boots[0] + 1, boots
    for boot in boots:
        ids = [event["id"] for event in events if event["boot"] == boot]
        assert ids == list(range(1, len(ids) + 1)), ids
    assert [event["name"] for event in events].count("started") == 2, rows.lines
    assert all(event["time"].endswith("Z") and "age_s" not in event for event in events)
    for follower in (plain, rows):
        notes = "\n".join(follower.notes)
        assert notes.count("does not answer; waiting for it") == 1, notes
        assert notes.count("the daemon answers again") == 1, notes
    assert sum("  started  " in line for line in plain.lines) == 2, plain.lines


def check_logs(group, plain, rows):
    """The follower printed the file; --json has the fields of each line."""
    log = (group.folder / "log").read_text(encoding="utf-8").splitlines()
    assert plain.lines[-1] in log and log.index(plain.lines[0]) == 0, plain.lines
    starts = [row for row in map(json.loads, rows.lines) if row.get("ev") == "started"]
    assert len(starts) == 2 and [int(row["boot"]) for row in starts] == [1, 2], starts
    assert starts[0]["level"] == "info" and starts[0]["ts"].endswith("Z"), starts
    last = tw(group, "logs", "-n", "2").splitlines()
    assert len(last) == 2 and set(last) <= set(log) | set(
        (group.folder / "log").read_text(encoding="utf-8").splitlines()), last


def check_other_lines(group):
    """A line of another form, and a log that is replaced by a shorter one."""
    path = group.folder / "log"
    path.unlink()
    follower = Follower(group, "logs", "-f", "--json")
    group.wait("the wait for a log", lambda: any("waiting for " in n for n in follower.notes))
    path.write_bytes(b'level=warn ev=odd text="a "b"" n=7\nTrace\x1bback: no fields\npart')
    group.wait("two lines", lambda: len(follower.lines) == 2)
    path.unlink()
    path.write_bytes(b"ev=new\n")
    group.wait("the new file", lambda: len(follower.lines) == 3)
    follower.end()
    rows = [json.loads(line) for line in follower.lines]
    assert rows[0] == {"level": "warn", "ev": "odd", "text": 'a "b"', "n": "7"}, rows[0]
    assert rows[1] == {"text": "Trace?back: no fields"} and rows[2] == {"ev": "new"}, rows


JOURNAL = """#!/bin/sh
echo "$@" >&2
case "$*" in
*--output=json*)
    printf '{"__REALTIME_TIMESTAMP":"1769860800123456",'
    printf '"MESSAGE":"level=info ev=x n=1"}\\n' ;;
*) echo text ;;
esac
"""


def check_journal(group):
    """A node under /etc/thinwire has its log in the journal."""
    script = group.folder / "journalctl"
    script.write_text(JOURNAL, encoding="ascii")
    script.chmod(0o755)
    inside = (f"mount -t tmpfs none /etc && mkdir /etc/thinwire && "
              f"cp {group.config(0)} /etc/thinwire/attic.conf && PATH={group.folder}:$PATH && "
              f"{group.tool('thinwire')} logs --config attic -f -n 7 && "
              f"{group.tool('thinwire')} logs --config attic --json")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inside], capture_output=True,
                          text=True, check=False)
    if done.returncode == 1 and "unshare" in done.stderr:
        print("journal: skipped:", done.stderr.strip())
        return
    text, row = done.stdout.splitlines()
    assert text == "text" and json.loads(row) == {"level": "info", "ev": "x", "n": "1",
                                                  "ts": "2026-01-31T12:00:00.123Z"}, done
    wanted = "--lines=7 --unit=thinwired@attic --unit=thinwire-worker@attic --follow"
    assert wanted in done.stderr, done.stderr


def main():
    """One node, started twice, under four followers."""
    with tempfile.TemporaryDirectory(prefix="tw_follow_") as folder:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 1)
        failed = subprocess.run([group.tool("thinwire"), "events", "-f", "--config",
                                 str(group.config(0))], capture_output=True, check=False)
        assert failed.returncode == 8, failed
        tw(group, "start")
        followers = [Follower(group, *words) for words in (
            ("events", "-f"), ("events", "--follow", "--json"), ("logs", "-f", "-n", "1000"),
            ("logs", "--follow", "--json", "-n", "1000"))]
        try:
            for boot in (1, 2):
                group.wait("all started lines", lambda n=boot: all(
                    sum("started" in line for line in one.lines) >= n for one in followers))
                if boot == 1:
                    tw(group, "leave")
                    group.wait("the wait", lambda: all(one.notes for one in followers[:2]))
                    tw(group, "start")
            group.wait("the answer", lambda: all(len(one.notes) >= 2 for one in followers[:2]))
        finally:
            for one in followers:
                one.end()
            tw(group, "leave")
        check_events(*followers[:2])
        check_logs(group, *followers[2:])
        check_other_lines(group)
        check_journal(group)
    print("ok")


if __name__ == "__main__":
    main()

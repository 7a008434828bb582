"""test_joins.py - every way in which a join can fail: each must have its own sentence, with a
way out, in `thinwire doctor` and in the status of the daemon.

    python3 test_joins.py BIN loopback    failures that need only processes
    python3 test_joins.py BIN admission    a clock that is off by a day, in a run with an owner
    python3 test_joins.py BIN ticket       a ticket that is not valid any more
    python3 test_joins.py BIN network     firewalls, routers and NAT; needs root and namespaces

Three hosts in a row: `b` joins, `r` is the router between, `a` has the run. The router drops,
rejects or hides by its routes, so no firewall program is needed.
"""
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import ports

PATIENCE_S = 60
JOINER, HOST = "198.51.100.2", "203.0.113.2"
ROUTES = {  # of the router, by target
    "203.0.113.66/32": "blackhole",  # as a firewall that drops
    "203.0.113.67/32": "prohibit",  # as a firewall that rejects
    "192.168.77.0/24": "blackhole",  # as a private network behind a NAT
}


def run(*command, **more):
    """Runs a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Space:
    """Namespaces a, r and b."""

    def __init__(self, is_wanted):
        self.is_wanted = is_wanted
        self.prefix = f"twj{os.getpid()}"

    def name(self, host):
        """Name of a host's namespace."""
        return self.prefix + host

    def __enter__(self):
        if self.is_wanted:
            try:
                self.up()
            except BaseException:
                self.down()
                raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Makes two cables, three hosts and their routes."""
        for host in "arb":
            run("ip", "netns", "add", self.name(host))
            run("ip", "-n", self.name(host), "link", "set", "lo", "up")
        for host, its, ours in (("b", JOINER, "198.51.100.1"), ("a", HOST, "203.0.113.1")):
            cable = self.name(host)[3:]
            run("ip", "link", "add", f"i{cable}", "netns", self.name(host), "type", "veth", "peer",
                f"o{cable}", "netns", self.name("r"))
            run("ip", "-n", self.name(host), "addr", "add", f"{its}/24", "dev", f"i{cable}")
            run("ip", "-n", self.name(host), "link", "set", f"i{cable}", "up")
            run("ip", "-n", self.name("r"), "addr", "add", f"{ours}/24", "dev", f"o{cable}")
            run("ip", "-n", self.name("r"), "link", "set", f"o{cable}", "up")
            run("ip", "-n", self.name(host), "route", "add", "default", "via", ours)
        for to, kind in ROUTES.items():
            run("ip", "-n", self.name("r"), "route", "add", kind, to)
        run(*self.on("r"), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        # The kernel limits rejections, so after a few dials the router would be silent.
        run(*self.on("r"), "sh", "-c", "echo 0 >/proc/sys/net/ipv4/icmp_ratelimit")

    def down(self):
        """Removes the namespaces."""
        if self.is_wanted:
            for host in "arb":
                subprocess.run(["ip", "netns", "del", self.name(host)], capture_output=True,
                               check=False)

    def on(self, host):
        """Begin of a command line in a namespace."""
        return ["nsenter", f"--net=/run/netns/{self.name(host)}"] if self.is_wanted else []


class World:
    """A folder with nodes, and the processes of this test."""

    def __init__(self, bin_dir, space, folder):
        self.bin, self.space, self.folder = pathlib.Path(bin_dir).resolve(), space, folder
        self.processes, self.ids = [], {}
        (folder / "text").write_text("In the beginning was the word.\n" * 4000, encoding="ascii")
        self.manifest = self.new_run("first", "security.admission=secret")

    def new_run(self, name, *keys):
        """The manifest of a small run."""
        more = [word for key in keys for word in ("--set", key)]
        path = self.folder / f"{name}.manifest"
        run(str(self.bin / "thinwire"), "run", "new", name, "--data", str(self.folder / "text"),
            "--out", str(path), "--set", "model.layers=2", "--set", "model.width=32",
            "--set", "model.heads=2", "--set", "model.context=32", *more)
        return path

    def node(self, name, listen, *, manifest=None, peers=(), secret=None):
        """Makes the files of a node; returns its configuration file."""
        config, worker = self.folder / f"{name}.conf", self.folder / f"{name}.worker"
        more = ["--peers", ",".join(peers)] if peers else []
        more += ["--secret-file", str(secret)] if secret else []
        said = run(
            str(self.bin / "thinwire"), "init", "--config", str(config), "--state-dir",
            str(self.folder / name), "--run-dir", str(self.folder / f"{name}.run"), "--run",
            str(manifest or self.manifest), "--data", str(self.folder / "text"), "--listen", listen,
            *more)
        self.ids[name] = said.split("This node is ")[1].split()[0]
        worker.write_text(f"#!/bin/sh\nexec {self.bin / 'stub_worker'} --step-us 20000 \"$@\"\n",
                          encoding="ascii")
        worker.chmod(0o755)
        text = config.read_text(encoding="ascii")
        config.write_text(text.replace("[node]\n", f"[node]\nworker_path = {worker}\n", 1),
                          encoding="ascii")
        return config

    def secret(self, name):
        """Path of a node's run secret."""
        return self.folder / name / "run.secret"

    def start(self, host, *command):
        """Starts a process on a host; it is ended with the world."""
        log = open(self.folder / f"log{len(self.processes)}", "wb")
        process = subprocess.Popen(self.space.on(host) + [str(word) for word in command],
                                   stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.processes.append(process)
        return process

    def shifted(self, seconds):
        """Begin of a command line with a clock that is shifted by so much."""
        return ["env", f"LD_PRELOAD={self.bin / 'shift_clock.so'}", f"TW_SHIFT_CLOCK_S={seconds}",
                "ASAN_OPTIONS=verify_asan_link_order=0"]

    def admit(self, name, config, clock_s=0):
        """The owner's certificate for a node, signed and imported by that clock."""
        tool = [*self.shifted(clock_s), str(self.bin / "thinwire")]
        cert = self.folder / f"{name}.cert"
        run(*tool, "owner", "sign", self.ids[name], "--run", str(self.manifest), "--key",
            str(self.folder / "owner.key"), "--out", str(cert))
        run(*tool, "owner", "import", str(cert), "--config", str(config))

    def daemon(self, host, config, clock_s=0):
        """Starts a daemon and waits until it answers."""
        process = self.start(host, *(self.shifted(clock_s) if clock_s else []),
                             self.bin / "thinwired", "--config", config)
        end = time.monotonic() + PATIENCE_S
        while self.status(config) is None:
            if process.poll() is not None or time.monotonic() > end:
                logs = [path.read_text(errors="replace") for path in self.folder.glob("log*")]
                raise RuntimeError("a daemon does not come up: " + "\n".join(logs))
            time.sleep(0.1)

    def status(self, config):
        """/v1/status, or None."""
        done = subprocess.run([str(self.bin / "thinwire"), "status", "--json", "--config",
                               str(config)], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def doctor(self, host, config):
        """Findings of the doctor as JSON, and its exit status."""
        done = subprocess.run(self.space.on(host) + [str(self.bin / "thinwire"), "doctor", "--json",
                                                     "--patience", "4", "--config", str(config)],
                              capture_output=True, text=True, check=False)
        return json.loads(done.stdout), done.returncode

    def end(self):
        """Ends all processes."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Web(http.server.BaseHTTPRequestHandler):
    """Another program that has the port."""

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Logs nothing."""


def judge(cases, rows, where, sentence_of):
    """Each address must have the sentence of its cause; returns the wrong ones."""
    wrong = []
    for address, (cause, words) in cases.items():
        said = sentence_of(rows, address)
        print(f"{where:7} {cause:13} {said}")
        if said is None or words not in said:
            wrong.append(f"{where}: {address} wants `{words}`, got `{said}`")
    return wrong


def of_doctor(report, address):
    """The line of that address, with its way out. Where another works, a dead one is a warning."""
    for row in report["checks"]:
        if row["grade"] in ("fail", "warn") and row["text"].startswith(f"{address}: "):
            return f"{row['text']}; {row['fix']}"
    return None


def of_status(status, address):
    """Row of an address in bootstrap[]."""
    for row in status["bootstrap"]:
        if row["address"] == address:
            return row["error"]
    return None


# A ticket names the node and the run, so that a join can only fail on the way there.
ON_THE_WAY = {"closed", "dns", "silent", "rejected", "private", "no_route"}


def try_lines(world, host, cases, inviter):
    """`thinwire join` with such an address must print the same sentence and make no file."""
    tool, runs, wrong = str(world.bin / "thinwire"), [], []
    for idx, (address, (cause, words)) in enumerate(cases.items()):
        if cause not in ON_THE_WAY:
            continue
        line = run(tool, "invite", "--address", address, "--config", str(inviter)).split()[-1]
        runs.append((address, words, subprocess.Popen(
            world.space.on(host) + [tool, "join", line, "--listen", "127.0.0.1:0", "--dir",
                                    str(world.folder / f"j{idx}")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)))
    for address, words, process in runs:
        said = process.communicate(timeout=PATIENCE_S)[0]
        found = [one for one in said.splitlines() if address in one and words in one]
        print(f"join    {found[0] if found else said}")
        if not found or process.returncode == 0:
            wrong.append(f"join: {address} wants `{words}`, got {process.returncode}: {said}")
    return wrong


def try_joins(world, host, listen, cases, good, prepare=None):
    """Starts the joining node with all addresses at once, then asks daemon and doctor."""
    secret = None if prepare else world.secret("first")
    config = world.node("joiner", listen, peers=[good, *cases], secret=secret)
    if prepare:
        prepare("joiner", config)
    before, code = world.doctor(host, config)
    wrong = judge(cases, before, "doctor", of_doctor)
    wanted = int(any(row["grade"] == "fail" for row in before["checks"]))
    if code != wanted:
        wrong.append(f"doctor: exit status {code}, wanted {wanted}")
    rows = {(row["check"], row["grade"]) for row in before["checks"]}
    if ("peer.admitted", "ok") not in rows:
        wrong.append("doctor: the one good address is not admitted")
    world.daemon(host, config)
    end, status = time.monotonic() + PATIENCE_S, None
    while time.monotonic() < end:
        status = world.status(config)
        if status and all(of_status(status, address) for address in cases):
            break
        time.sleep(0.3)
    wrong += judge(cases, status, "status", of_status)
    for address, (cause, _) in cases.items():
        named = [row["cause"] for row in status["bootstrap"] if row["address"] == address]
        if named != [cause.split(".")[0]]:
            wrong.append(f"status: {address} has cause {named}, wanted {cause}")
    while time.monotonic() < end and world.status(config)["sync"]["alive_peers"] < 1:
        time.sleep(0.3)
    if world.status(config)["sync"]["alive_peers"] < 1:
        wrong.append("the good address did not lead to a link beside the bad ones")
    after, code = world.doctor(host, config)
    if ("daemon", "ok") not in {(row["check"], row["grade"]) for row in after["checks"]}:
        wrong.append("doctor: does not see the daemon that runs")
    if world.status(config)["sync"]["alive_peers"] < 1:
        wrong.append("doctor beside the daemon cost its link")
    return wrong


def try_without(world, good, first):
    """A node without its secret must send no proof rather than a false one."""
    config = world.node("blank", f"127.0.0.1:{ports.hold()}", peers=[good])
    world.secret("blank").unlink()
    report, _ = world.doctor("b", config)
    seen = run(str(world.bin / "thinwire"), "events", "--json", "--config", str(first))
    wrong = [f"doctor without a secret: {row}" for row in report["checks"]
             if row["check"] == "peer.admitted" and row["grade"] != "skip"]
    if not any("needs the manifest and the secret" in row["text"] for row in report["checks"]):
        wrong.append("doctor without a secret does not say what it needs")
    if ("peer.tls", "ok") not in {(row["check"], row["grade"]) for row in report["checks"]}:
        wrong.append("doctor without a secret does not get as far as TLS")
    if "wrong_secret" in seen:
        wrong.append("doctor without a secret was refused for a false proof")
    return wrong


def loopback(world):
    """Wrong port, DNS, wrong secret, other manifest, other version, another program, another id."""
    numbers = [ports.hold() for _ in range(6)]
    good, secret, manifest, version, web, closed = (f"127.0.0.1:{port}" for port in numbers)
    world.daemon("a", world.node("first", good))
    world.daemon("a", world.node("stranger", secret))
    world.daemon("a", world.node("elsewhere", manifest, manifest=world.new_run("second",
                                                                "security.admission=secret"),
                                 secret=world.secret("first")))
    world.start("a", world.bin / "old_peer", "127.0.0.1", str(numbers[3]))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", numbers[4]), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cases = {
        closed: ("closed", "nothing listens on that port"),
        "no-such-host.invalid:4747": ("dns", "the name cannot be resolved"),
        secret: ("wrong_secret", "wrong run secret"),
        manifest: ("other_run", "other manifest"),
        version: ("version", "update the older of the two"),
        web: ("not_thinwire", "not a Thinwire node"),
    }
    wrong = try_joins(world, "b", f"127.0.0.1:{ports.hold()}", cases, good)
    server.shutdown()
    wrong += try_without(world, good, world.folder / "first.conf")
    return wrong + try_lines(world, "b", cases, world.folder / "first.conf")


def admission(world):
    """A node whose clock is a day behind refuses today's certificates."""
    good, behind = (f"127.0.0.1:{ports.hold()}" for _ in range(2))
    day_s = 86400
    run(str(world.bin / "thinwire"), "owner", "new", cwd=world.folder)
    shown = run(str(world.bin / "thinwire"), "owner", "show", str(world.folder / "owner.key"),
                "--json")
    world.manifest = world.new_run("owned", "security.admission=owner",
                                   f"security.owner={json.loads(shown)['key']}")
    for name, listen, clock_s in (("first", good, 0), ("behind", behind, -day_s)):
        config = world.node(name, listen)
        world.admit(name, config, clock_s)
        world.daemon("a", config, clock_s)
    cases = {behind: ("clock", "the clocks of the two machines are far apart")}
    return try_joins(world, "b", f"127.0.0.1:{ports.hold()}", cases, good, world.admit)


def ticket(world):
    """The doctor judges a ticket before its use; join prints the same for an expired one."""
    good = f"127.0.0.1:{ports.hold()}"
    config = world.node("first", good)
    world.daemon("a", config)
    tool, wrong = str(world.bin / "thinwire"), []
    line = run(tool, "invite", "--config", str(config)).split()[-1]
    old = run(tool, "invite", "--expires", "1s", "--config", str(config)).split()[-1]

    def check(what, words, status, *command):
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              cwd=world.folder, stdin=subprocess.DEVNULL)
        said = done.stdout + done.stderr
        found = [one for one in said.splitlines() if words in one]
        print(f"{what:18} {found[0].strip() if found else said}")
        if not found or done.returncode != status:
            wrong.append(f"{what}: status {done.returncode}, no `{words}` in: {said}")

    check("doctor", f"{good} is node", 0, tool, "doctor", line)
    check("doctor, later", "by the clock of this machine, ticket", 0, *world.shifted(30 * 86400),
          tool, "doctor", line)
    check("doctor, cut", "FAIL  ticket", 1, tool, "doctor", line[:-9])
    time.sleep(2.5)
    check("join, too late", "the ticket has expired", 10, tool, "join", old, "--dir",
          str(world.folder / "late"), "--listen", "127.0.0.1:0")
    listed = run(tool, "invite", "--list", "--json", "--config", str(config))
    if any(row["used"] for row in json.loads(listed).get("tickets", [])) or "used" not in listed:
        wrong.append(f"looking at a ticket has cost a use: {listed}")
    world.end()
    check("doctor, node down", "nothing listens on that port", 1, tool, "doctor", line)
    return wrong


def network(world):
    """Wrong port, firewall that drops, firewall that rejects, NAT, no route."""
    good = f"{HOST}:4747"
    world.daemon("a", world.node("first", good))
    cases = {
        f"{HOST}:4748": ("closed", "nothing listens on that port"),
        "203.0.113.66:4747": ("silent", "no answer"),
        "203.0.113.67:4747": ("rejected", "the network says that it cannot be reached"),
        "192.168.77.5:4747": ("private", "likely behind NAT"),
        "[2001:db8::1]:4747": ("no_route", "no route there"),
    }
    return try_joins(world, "b", f"{JOINER}:4747", cases, good) + \
        try_lines(world, "b", cases, world.folder / "first.conf")


def lacks(kind):
    """Why this part cannot run on this machine; None: it can."""
    if kind != "network":
        return None
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "wants root and iproute2 for network namespaces"
    name = f"twj{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "the kernel gives no network namespace"
    run("ip", "netns", "del", name)
    return None


PARTS = {"loopback": loopback, "network": network, "admission": admission,
         "ticket": ticket}


def main():
    """One part of the test."""
    bin_dir, kind = sys.argv[1], sys.argv[2]
    why = lacks(kind)
    if why:
        print(f"skipped: {why}")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-joins-", dir="/tmp"))
    wrong = ["it did not come to an end"]
    try:
        with Space(kind == "network") as space:
            world = World(bin_dir, space, folder)
            try:
                wrong = PARTS[kind](world)
            finally:
                world.end()
    finally:
        if wrong:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    print("\n".join(f"WRONG {line}" for line in wrong) or "every cause has its own sentence")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""advice_faults.py - advice about groups and machines in which something broke."""
import os
import re
import time

import ports
from advice import Wrong, situation, typed_on_terminal


def merged(at, *names, more=""):
    """Nodes of one run, started, linked and merging with each other; the last one is selected."""
    first = None
    for name in names:
        _, address = at.node(name, more=more)
        if first:
            at.change(name, r"^\[network\]$", f"[network]\npeers = {first}")
        first = first or address
        at.start(name)
    # linked too: of a member that this node has never met, others tell
    at.wait("they merge", lambda: len(names) - 1 == (sync := at.status()["sync"])["mixed_peers"]
            == sync["alive_peers"])


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
    kept = [row for row in at.json("thinwire rollback")["generations"]
            if row["file"] == "undone"]
    assert kept and kept[0]["round"] >= before["checkpoint"]["rounds"], kept
    assert "undone" in listed, listed


# ---- members that fall silent --------------------------------------------------------------

QUICK = ["sync.period=5", "sync.overlap=1", "sync.fragments=1", "security.admission=open"]
SILENCE_S = 200  # a member is missed after two minutes


@situation("faults", "look at that machine and its line; `thinwire leave` there")
def member_lost(at):
    """One of three machines dies, and leaves in order the next time."""
    at.manifest("run", ["sync.nodes=3", *QUICK])
    merged(at, "c", "b", "a")
    end_at_once(at, "b")
    at.wait("it is missed", lambda: "member_lost" in at.warnings(), SILENCE_S)
    leave = at.advice(at.good("thinwire status"), "look at that machine and its line")[0]
    at.start("b")
    at.select("a")
    at.wait("it is back", lambda: not at.warnings())
    at.select("b")
    at.good(leave)
    at.select("a")
    at.wait("it has left, and is not missed", lambda: "left" in at.good("thinwire peers"))
    if at.warnings():
        raise Wrong(at.good("thinwire status"))


@situation("faults", "look at those machines and at this one's line: `thinwire peers`")
def trains_alone(at):
    """The only other machine dies."""
    at.manifest("run", ["sync.nodes=2", *QUICK])
    merged(at, "b", "a")
    end_at_once(at, "b")
    at.wait("alone", lambda: "trains_alone" in at.warnings(), SILENCE_S)
    peers, doctor = at.advice(at.good("thinwire status"), "look at those machines")
    if "nothing listens" not in at.good(peers) + at.bad(doctor):
        raise Wrong("neither says why")
    at.start("b")
    at.select("a")
    at.wait("no warning", lambda: not at.warnings())


# ---- clocks --------------------------------------------------------------------------------

@situation("faults", "set them: `timedatectl set-ntp true`", "set it: `timedatectl set-ntp true`",
           "set the clock: `timedatectl set-ntp true`", "`timedatectl set-ntp true`")
def clocks(at):
    """Clocks of two machines that differ, and one that was never set."""
    at.stand_in("timedatectl", 'test "$*" = "set-ntp true"')
    at.node("a")
    doctor = "thinwire doctor --patience 1"
    at.follow(at.bad(at.shifted(-5 * 365 * 86400) + doctor), "set it: `timedatectl")
    at.good(doctor)
    at.good("touch -d '1 day' a/state/identity.key")
    at.follow(at.good(doctor), "set the clock: `timedatectl")
    at.good("touch a/state/identity.key")
    if "is dated in the future" not in at.good(doctor):
        raise Wrong(at.good(doctor))
    said = at.bad(at.shifted(-300 * 86400) + doctor)
    at.follow(said, at.message("`timedatectl set-ntp true`").text)
    first = at.node("a2")[1]
    at.start()
    own = at.node("b")[0]
    at.change("b", r"^\[network\]$", f"[network]\npeers = {first}")
    at.good(at.shifted(-9 * 86400) + f"thinwire owner sign {own} --run run --out b.cert")
    at.good("thinwire owner import b.cert")
    at.good(at.shifted(-86400) + "thinwire start")
    at.wait("the clocks", lambda: "far apart" in at.good("thinwire peers"))
    at.follow(at.good("thinwire peers"), "set them: `timedatectl")
    at.good("thinwire leave")
    at.start()
    at.wait("they agree", lambda: at.status()["sync"]["alive_peers"] == 1)
    if at.warnings():
        raise Wrong(at.good("thinwire status"))


# ---- disks and caps ------------------------------------------------------------------------

@situation("faults", "free some space or repair the state directory, then `thinwire checkpoint`",
           "`thinwire peers` names members that stall; restart such a node")
def full_disk(at):
    """The disk of one of two machines is full, so that no round closes."""
    if os.geteuid() != 0:
        for message in list(at.seen):
            at.spare(message.text, "only root mounts a small disk")
        return
    at.manifest("run", ["sync.nodes=2", *QUICK])
    first = at.node("a")[1]
    at.start()
    at.node("b")
    at.change("b", r"^\[network\]$", f"[network]\npeers = {first}")
    at.change("b", r"^\[node\]$", "[node]\ncheckpoint_interval = 5s\nrecorder = 0")
    at.good("mv b/state b/kept && mkdir -m 700 b/state && mount -t tmpfs -o size=24m,mode=700 "
            "small b/state && cp -a b/kept/. b/state/")
    try:
        at.start("b")
        at.wait("they merge", lambda: at.status()["sync"]["mixed_peers"] == 1)
        at.type("dd if=/dev/zero of=b/state/filler bs=64k")
        at.wait("it is told", lambda: {"checkpoint_failed", "votes_unsaved"} <= set(at.warnings()))
        save = at.advice(at.good("thinwire status"), "then `thinwire checkpoint`")[0]
        at.bad(save)
        if "would be lost" not in at.bad("thinwire leave"):
            raise Wrong("leave does not say that steps are lost")
        at.good("thinwire status")
        at.select("a")
        at.wait("a round is stuck", lambda: "round_stuck" in at.warnings())
        at.advice_told(at.good("thinwire status"), "names members that stall")
        at.select("b")
        at.good("rm b/state/filler")
        at.good(save)
        at.wait("no warning there", lambda: not at.warnings())
        at.select("a")
        at.wait("nor here", lambda: not at.warnings())
    finally:
        at.end()
        at.good("umount -l b/state")


@situation("faults", "raise network.quota and `thinwire reload`")
def quota(at):
    """The month's bytes are spent."""
    at.node("a")
    at.change("a", r"^\[network\]$", "[network]\nquota = 1GB/month")
    month = at.good("date +%Y-%m").strip()
    at.write("a/state/traffic", f"thinwire-traffic 2\nmonth {month} bytes 1000000000 served 0\n"
             "strangers 0 bytes 0\noutside 0 bytes 0\n", 0o600)
    at.start()
    at.wait("it rests", lambda: "quota" in " ".join(at.warnings()))
    said = at.good("thinwire status")
    at.change("a", r"^quota = 1GB/month$", "quota = 2GB/month")
    at.follow(said, "raise network.quota and")
    at.wait("no warning", lambda: not at.warnings())


# ---- nodes that are let in ------------------------------------------------------------------

@situation("faults", "`thinwire unban NODE` lifts a ban before")
def banned(at):
    """A node that broke the protocol before this one was started again."""
    first = at.node("a")[1]
    other = at.node("b", select=False)[0]
    at.start("a")
    at.good("thinwire leave")
    folder = next(path for path in (at.folder / "a/state").iterdir() if path.is_dir())
    at.write(str(folder / "bans"), f"{other} {int(time.time()) + 7000} 7200\n", 0o600)
    at.start("a")
    command = at.advice(at.good("thinwire peers"), "`thinwire unban NODE`", NODE=other[:8])[0]
    at.change("b", r"^\[network\]$", f"[network]\npeers = {first}")
    at.start("b")
    at.wait("it is refused", lambda: "bans" in at.good("thinwire peers"))
    at.select("a")
    at.good(command)
    at.select("b")
    at.wait("it is linked", lambda: at.status()["sync"]["alive_peers"] == 1)


# ---- the system -----------------------------------------------------------------------------

@situation("faults", "systemd has no unit thinwired@", ": run `thinwired --config %s` by another")
def no_units(at):
    """A node in /etc/thinwire on a system whose systemd lacks our units, or that has none."""
    if os.geteuid() != 0 or at.type("unshare -m true").code != 0:
        for message in list(at.seen):
            at.spare(message.text, "only root gets an /etc of its own")
        return
    at.node("a")
    at.good("thinwire config check")
    at.change("a", r"^state_dir = ", f"state_dir = {at.folder}/a/")
    at.change("a", r"^run_dir = ", f"run_dir = {at.folder}/a/")
    at.good("mkdir -p etc/thinwire && cp -a /etc/. etc/ && cp a/node.conf etc/thinwire/bible.conf")
    at.env.pop("THINWIRE_CONFIG")
    begin = f"cd {at.folder} && mount --bind etc /etc && "
    units = at.folder / "root/usr/lib/systemd/system"
    at.stand_in("systemctl", f'test "$1" != is-enabled && ls {units}/thinwired@.service')
    start = f"unshare -m bash -c '{begin} thinwire --config bible start'"
    install = at.advice(at.bad(start), "systemd has no unit", BUILD=at.bin.parent)[0]
    at.good(f"DESTDIR={at.folder}/root {install}")
    if "has no unit" in at.type(start).text:
        raise Wrong("the unit files are not where systemd looks")
    at.good("rm stand-ins/systemctl")
    hidden = "if x=$(command -v systemctl); then mount --bind /dev/null $x; fi && "
    said = at.bad(f"unshare -m bash -c '{begin} {hidden} thinwire --config bible start'")
    run = at.advice(said, ": run `thinwired --config")[0]
    at.background(f"unshare -m bash -c '{begin} exec {run}'")
    at.wait("it runs", lambda: at.type(
        f"unshare -m bash -c '{begin} thinwire --config bible status'").code == 0)


@situation("faults", "`modprobe tcp_bbr`, and a line")
def no_bbr(at):
    """A kernel without the module of BBR: a file stands in for the list that it shows."""
    at.node("a")
    at.write("kernel", "reno cubic\n")
    doctor = (f"unshare -m bash -c 'mount --bind {at.folder}/kernel "
              "/proc/sys/net/ipv4/tcp_available_congestion_control && "
              "thinwire doctor --patience 1'")
    if os.geteuid() != 0 or at.type(doctor).code != 0:
        at.spare("`modprobe tcp_bbr`", "only root shows another list")
        return
    at.stand_in("modprobe", f'test "$*" = tcp_bbr && echo reno cubic bbr >{at.folder}/kernel')
    at.follow(at.good(doctor), "`modprobe tcp_bbr`")
    if "tcp_bbr" in at.good(doctor):
        raise Wrong("it is still not loaded")


@situation("faults", "the list is full at %d nodes: `thinwire")
def full_list(at):
    """A thousand nodes were shut out."""
    at.node("a")
    at.good("for i in $(seq 1100); do printf '%064x\\n' $i; done >ids")
    at.good("thinwire owner revoke $(head -n 1024 ids)")
    said = at.bad("thinwire owner revoke $(tail -n 1 ids)")
    at.follow(said, "the list is full", "$(head -n 1 ids)")
    at.good("thinwire owner revoke $(tail -n 1 ids)")


@situation("faults", "have the owner sign more voters (`thinwire")
def voters(at):
    """A group of two in which one node votes."""
    at.manifest("run", ["sync.nodes=2", *QUICK[:3]])
    first = at.node("a")[1]
    at.start()
    own = at.node("b")[0]
    at.change("b", r"^\[network\]$", f"[network]\npeers = {first}")
    at.good(f"thinwire owner sign {own} --run run --no-vote --out new")
    at.good("thinwire owner import new")
    at.start()
    at.wait("they merge", lambda: at.status()["sync"]["mixed_peers"] == 1)
    sign = at.advice(at.good("thinwire doctor --patience 1"), "have the owner sign more")[0]
    at.good(f"{sign} {own} --run run --out voter")
    at.good("thinwire owner import voter")
    at.good("thinwire leave")
    at.start()
    at.wait("both vote", lambda: at.status()["sync"]["roster_voters"] == 2)
    if "sign more voters" in at.good("thinwire doctor --patience 1"):
        raise Wrong("doctor still wants more")


@situation("faults", "; it is gone (`ip link` lists them)")
def gone_interface(at):
    """An interface that goes while a node runs."""
    name = f"twadv{os.getpid() % 100000}"
    if at.type(f"ip link add {name} type veth peer {name}b").code != 0:
        at.spare("; it is gone", "no interface can be made here")
        return
    at.node("a")
    at.change("a", r"^\[network\]$",
              f"[network]\npeers = 127.0.0.1:{ports.hold()}\ninterface = {name}")
    at.start()
    at.good(f"ip link del {name}")
    said = at.wait("it is told", lambda: "it is gone" in (text := at.good("thinwire peers")) and
                   text)
    if name in at.follow(said, "; it is gone"):
        raise Wrong("it is there")
    at.good("thinwire leave")
    at.change("a", f"^interface = {name}$", "")
    at.start()
    at.wait("another reason", lambda: "nothing listens" in at.good("thinwire peers"))


@situation("faults", "owner recall: in a run of pairs each node")
def pairs(at):
    """Each node of a run of pairs goes back by itself."""
    at.manifest("run", ["sync.preset=noloco"])
    at.node("a")
    at.start()
    at.wait("a step", lambda: at.status()["train"]["steps"] > 2)
    at.good("thinwire checkpoint")
    said = at.bad("thinwire owner recall 5")
    if "pinned" not in at.follow(said, "owner recall: in a run of pairs") and \
            "ROUND" not in at.good("thinwire rollback"):
        raise Wrong(at.good("thinwire rollback"))


# ---- a daemon that does not answer ---------------------------------------------------------

DEAF = """import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(sys.argv[1])
listener.listen(9)
kept = []
while True:
    kept.append(listener.accept())
"""


@situation("faults", "the daemon (process %d) runs, but did not",
           "the daemon took the connection on %s but")
def silent(at):
    """A daemon that is too busy to answer, seen as a process or not: a program stands in for it."""
    at.node("a")
    at.write("deaf.py", DEAF)
    at.good("mkdir -p a/sockets")
    at.background(f"python3 deaf.py {at.folder}/a/sockets/thinwired.sock")
    at.wait("it listens", lambda: (at.folder / "a/sockets/thinwired.sock").exists())
    at.stand_in("uptime", "exit 0")
    at.follow(at.bad("thinwire status"), "runs, but did not")
    if at.type("unshare --pid --fork true").code == 0:
        at.follow(at.bad("unshare --pid --fork thinwire status"), "took the connection on")
    else:
        at.spare("the daemon took the connection", "only root hides processes")
    for pid, words in at.processes():
        if "deaf.py" in words:
            at.good(f"kill {pid}")
    at.good("rm a/sockets/thinwired.sock")
    at.start()
    at.good("thinwire status")


@situation("faults", "% events came too fast to be seen",
           "the events of a daemon that has ended are in its log")
def many_events(at):
    """A terminal that was stopped, while more happened than the daemon keeps."""
    at.node("a")
    at.start()
    at.background("thinwire events --follow >seen 2>&1 & echo $! >follower; wait")
    at.wait("the first events", lambda: (at.folder / "seen").exists() and
            (at.folder / "seen").read_text())
    at.good("kill -STOP $(cat follower)")
    for _ in range(40):
        at.good("thinwire pause && thinwire resume")
    at.good("kill -CONT $(cat follower)")
    said = at.wait("the gap", lambda: "too fast" in (at.folder / "seen").read_text() and
                   (at.folder / "seen").read_text())
    if "paused" not in at.follow(said, "events came too fast"):
        raise Wrong("the log lacks them")
    at.good("thinwire leave")
    said = at.bad("thinwire events")
    if "paused" not in at.follow(said, "the events of a daemon that has ended"):
        raise Wrong("the log of the daemon that has ended lacks them")


# ---- before there is a node ----------------------------------------------------------------

@situation("faults", "Manifest of the run (`thinwire run new` makes one)",
           "no GPU has that much: train", ": trains one model together")
def too_large(at):
    """Models larger than machines, and the words of a first day."""
    at.good(at.advice(at.good("thinwired --help"), ": trains one model together")[0] + " --help")
    said = typed_on_terminal(at, "thinwire init --dir a </dev/tty", "\x04")
    at.good(at.advice(said, "Manifest of the run")[0] + " m --out m --data text")
    said = at.good("thinwire run new big --model llama-70b --out big")
    if "gpt2" not in at.follow(said, "no GPU has that much"):
        raise Wrong("run models lists none")
    at.good("thinwire run new small --model 1m --out small --data text")

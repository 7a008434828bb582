"""advice_nodes.py - advice about daemons: one that runs or does not, tickets, the owner of a run,
peers that cannot be linked."""
import os
import re
import signal
import time
import urllib.error
import urllib.request

import ports
from advice import Wrong, situation, typed_on_terminal


# ---- one node --------------------------------------------------------------------------------

@situation("node", "`%s`, when all is good here", "`thinwire start` writes it, and a",
           "the daemon has ended; `%s` continues", "No peers yet. `thinwire invite`",
           "No rounds yet; `thinwire status` shows", "`thinwire --config NAME start`",
           "no daemon answers on %s; start it", "Next steps:",
           "exists and is not overwritten. Change that file")
def one_node(at):
    """A daemon that does not run, ends, and has no peers."""
    at.manifest()
    made = at.good(f"thinwire init --dir n --run run --data text --listen 127.0.0.1:{ports.hold()}")
    steps = at.advice(made, "Next steps:")
    for k, step in enumerate(steps):
        limit = "timeout -s INT 3 " if "watch" in step else ""
        at.good(f"{steps[0]}; {limit}{step} || [ $? = 124 ]" if k > 0 else step)
    at.select("n")
    at.good("thinwire leave")
    said = at.bad("thinwire init --dir n")
    for command in at.advice(said, "exists and is not overwritten"):
        at.good(command)
    at.good("thinwire leave")
    at.node("a")
    said = at.good("thinwire doctor --patience 1")
    log = at.bad("thinwire logs")
    at.follow(said, "when all is good here")
    if "when all is good" in at.good("thinwire doctor --patience 1"):
        raise Wrong("doctor still finds no daemon")
    at.advice(log, "`thinwire start` writes it")
    at.good("thinwire logs")
    line = at.follow(at.good("thinwire peers"), "No peers yet")
    if "tw1" not in line:
        raise Wrong(line)
    rounds = at.good("thinwire rounds")
    if "No rounds yet" in rounds:
        at.follow(rounds, "No rounds yet")
    else:  # the machine was busy meanwhile
        at.spare("No rounds yet; `thinwire status` shows", "the first round was closed already")
    at.follow(at.good("thinwire leave"), "the daemon has ended")
    at.good("thinwire status")
    at.good("thinwire leave")
    at.follow(at.bad("thinwire status"), "no daemon answers on")
    at.good("thinwire status")
    at.good("thinwire leave")
    said = at.bad(f"thinwire status --socket {at.folder}/a/sockets/thinwired.sock")
    at.follow(said, "`thinwire --config NAME start`", NAME=f"{at.folder}/a/node.conf")
    at.good("thinwire status")


@situation("node", "paused; `thinwire resume` continues", "`thinwire resume` is awaited",
           "is stopped, by Ctrl-Z, `kill -STOP`")
def paused(at):
    """A node that is paused, and one that is stopped."""
    at.node("a")
    at.change("a", r"^\[worker\]$", "[worker]\nhours = 00:00-24:00 off")
    at.start()
    at.good("thinwire pause")
    at.change("a", r"^hours.*$", "")
    said = at.good("thinwire status")
    if "is awaited" not in said:
        raise Wrong(f"not paused by the hours: {said}")
    at.advice(said, "is awaited")
    at.good("thinwire reload")
    said = at.wait("only paused", lambda: only(at.good("thinwire status"), "paused; `thin"))
    at.follow(said, "paused; `thinwire resume`")
    at.wait("it goes on", lambda: "is paused" not in at.status()["sentence"])
    os.kill(at.daemon(), signal.SIGSTOP)
    said = at.bad("thinwire status")
    command = at.advice(said, "is stopped, by Ctrl-Z")[-1]
    at.good(command)
    at.good("thinwire status")


def only(text, part):
    """The text if it has the part."""
    return text if part in text else None


@situation("node", "this needs the token of the page; `thinwire web`",
           "unban: which node? `thinwire peers`", "no node %s is banned here; `thinwire peers`",
           "no secret has the mark", "there is no generation",
           "the daemon of this node runs: `thinwire leave`", "`thinwire rollback undone`",
           "`thinwire invite` prints a line with which")
def screens(at):
    """The page, bans, secrets and checkpoints of one node."""
    at.manifest("run", ["security.admission=secret"])
    at.node("a")
    port = ports.hold()
    at.change("a", r"^\[api\]$", f"[api]\nweb = 127.0.0.1:{port}")
    at.start()
    at.follow(at.good("thinwire doctor --patience 1"), "`thinwire invite` prints a line with which")
    page = f"http://127.0.0.1:{port}"
    try:
        urllib.request.urlopen(page + "/v1/status", timeout=60)
        raise Wrong("the page needs no token")
    except urllib.error.HTTPError as refusal:
        link = at.follow(refusal.read().decode(), "needs the token of the page")
    token = re.search(r"http\S+#\S*?([\w-]{16,})", link)[1]
    ask = urllib.request.Request(page + "/v1/status", headers={"Authorization": f"Bearer {token}"})
    urllib.request.urlopen(ask, timeout=60)
    at.follow(at.bad("thinwire unban"), "unban: which node?")
    at.follow(at.bad("thinwire unban abcd1234"), "is banned here")
    marks = at.follow(at.bad("thinwire secret use abcd1234"), "no secret has the mark")
    if "in use" not in marks:
        raise Wrong(marks)
    at.good("thinwire checkpoint")
    at.good("thinwire checkpoint")
    said = at.bad("thinwire rollback banana --yes")
    at.follow(said, "there is no generation")
    rows = at.json("thinwire rollback")["generations"]
    older = min(rows, key=lambda row: row["step"])["file"]
    said = at.bad(f"thinwire rollback {older} --yes")
    at.follow(said, "`thinwire leave` first")
    said = at.good(f"thinwire rollback {older} --yes")
    at.follow(said, "`thinwire rollback undone`", "--yes")
    at.good("thinwire start")


# ---- tickets ---------------------------------------------------------------------------------

@situation("pair", "There are no tickets. `thinwire invite`",
           "`thinwire invite --list` shows the uses", "no ticket is called",
           "or its name, which `thinwire invite --list` shows",
           "tickets are out and good: take one back", "copy the whole line that `thinwire invite`",
           "the line of `thinwire invite` is missing",
           "Line of `thinwire invite` (it is not shown)",
           "is the line complete? Ask for a new one", "ask for a new one: `thinwire invite`",
           "ask for a new one: `thinwire invite --uses N`", "`thinwire join` will tell",
           "if the clock is right (`timedatectl` shows it)")
def tickets(at):
    """Every ticket that does not let a machine in, and the new one that does."""
    at.node("a")
    at.start()
    inviter = at.env["THINWIRE_CONFIG"]

    def invited(command):
        """The line that the operator of the first machine gets."""
        at.env["THINWIRE_CONFIG"] = inviter
        said = at.good(command)
        at.env.pop("THINWIRE_CONFIG")
        return re.search(r"tw1\w+", said)[0]

    def joins(name, line):
        at.good(f"thinwire join {line} --dir {name} --data text --listen 127.0.0.1:{ports.hold()}")

    at.follow(at.good("thinwire invite --list"), "There are no tickets")
    shown = at.good("thinwire invite --address 192.0.2.7:4747")
    listed = at.follow(shown, "shows the uses")
    at.follow(at.bad("thinwire invite --revoke abcd1234"), "no ticket is called")
    at.follow(at.bad("thinwire invite --revoke '?'"), "or its name, which")
    name = re.search(r"^([0-9a-f]{8})", listed, re.M)[1]
    while True:
        said = at.type("thinwire invite")
        if said.code:
            break
    at.good(at.advice(said.text, "take one back")[0] + f" {name}")
    line = invited("thinwire invite")
    said = at.bad("thinwire join --dir b")
    at.advice(said, "is missing")
    said = at.bad(f"thinwire join {line[:-9]} --dir b")
    said = at.advice(said, "copy the whole line")[0]
    at.env["THINWIRE_CONFIG"] = inviter
    at.good(f"thinwire invite --revoke {line}")
    at.env.pop("THINWIRE_CONFIG")
    said = at.bad(f"thinwire join {line} --dir b --data text")
    line = invited(at.advice(said, "is the line complete?")[0])
    said = at.type(f"thinwire doctor {line}").text
    at.advice(said, "`thinwire join` will tell")
    joins("b", line)
    said = at.bad(f"thinwire join {line} --dir c --data text")
    line = invited(at.advice(said, "ask for a new one: `thinwire invite --uses N`", N=2)[0])
    joins("c", line)
    at.env["THINWIRE_CONFIG"] = inviter
    for row in at.json("thinwire invite --list")["data"]["tickets"][:9]:
        at.good(f"thinwire invite --revoke {row['ticket']}")
    line = invited("thinwire invite --expires 1s")
    time.sleep(2.5)
    said = at.good(f"thinwire doctor {line}")
    words = at.advice(said, "if the clock is right")
    at.stand_in("timedatectl", 'test "$*" = "set-ntp true" || test -z "$*"')
    for command in (words[0], words[2]):
        at.good(command)
    said = at.bad(f"thinwire join {line} --dir d --data text")
    new = at.advice(said, "ask for a new one: `thinwire invite`")[0]
    if words[1] != new:
        raise Wrong(f"doctor advises {words[1]}, join {new}")
    said = typed_on_terminal(at, f"thinwire join --dir d --data text --listen 127.0.0.1:"
                             f"{ports.hold()}", invited(new) + "\n")
    at.advice(said, "(it is not shown)")
    at.good("thinwire --config d/node.conf config check")


def damage(at):
    """Overwrites some bytes of every checkpoint of node b."""
    for path in (at.folder / "b/state").rglob("ckpt.*"):
        if path.is_file() and path.stat().st_size > 4096:
            with open(path, "r+b") as file:
                file.seek(path.stat().st_size - 2048)
                file.write(bytes(range(256)))


@situation("pair", "This line lets %d machine%s", "On disk here: a checkpoint after %s rounds",
           "`thinwire doctor` tries every stage of every address",
           "; `thinwire start --fresh` starts without it",
           "`thinwire checkpoint` saves a good one now",
           "`thinwire start --fresh` sets it aside")
def two_nodes(at):
    """Another machine joins, and is dialled in vain; a checkpoint is damaged."""
    at.manifest("run", ["sync.nodes=2", "sync.period=5", "sync.overlap=1", "sync.fragments=1"])
    at.node("a", select=True)
    at.start()
    said = at.good("thinwire invite")
    command = at.advice(said, "This line lets", FOLDER="b")[0]
    line = re.search(r"tw1\w+", said)[0]
    at.good(command.replace("--start", "-") + f" --data text --listen 127.0.0.1:{ports.hold()}",
            stdin=line + "\n")
    at.stub("b")
    at.start("b")
    at.wait("they merge", lambda: at.status()["sync"]["mixed_peers"] == 1)
    at.good("thinwire checkpoint")
    at.select("a")
    at.good("thinwire checkpoint")
    said = at.good("thinwire checkpoint --run")
    at.select("b")
    at.good(at.advice(said, "On disk here: a checkpoint")[0])
    at.good("thinwire leave")
    at.select("a")
    # the peer that b knows is not there
    at.good("thinwire leave")
    at.select("b")
    at.good("rm -f b/state/*/known")  # a member that b misses is another warning, and a later one
    at.start("b")
    at.wait("unreachable", lambda: "unreachable" in at.warnings())
    found = at.type(at.advice(at.good("thinwire status"), "`thinwire doctor` tries")[0]).text
    if "nothing listens on that port" not in found:
        raise Wrong(found)
    at.start("a")
    at.select("b")
    at.wait("no warning", lambda: not at.warnings())
    damage(at)
    at.good(at.advice(at.bad("thinwire doctor"), "saves a good one now")[0])
    if "every byte was read, and is intact" not in (found := at.type("thinwire doctor").text):
        raise Wrong(found)
    at.good("thinwire leave")
    damage(at)
    at.advice(at.bad("thinwire doctor"), "sets it aside")
    said = at.bad("thinwire start")
    command = at.advice(said, "; `thinwire start --fresh`")[0]
    at.good(command)
    at.wait("it starts afresh", lambda: at.type("thinwire status").code == 0)


@situation("pair", "and only the owner lets nodes admit")
def guest_invites(at):
    """A guest invites nobody, until the owner signs that right."""
    at.node("a")
    at.start()
    line = re.search(r"tw1\w+", at.good("thinwire invite"))[0]
    at.good(f"thinwire join - --dir b --data text --listen 127.0.0.1:{ports.hold()}",
            stdin=line + "\n")
    at.stub("b")
    at.start("b")
    at.wait("they are linked", lambda: at.status()["sync"]["alive_peers"] == 1)
    sign = at.advice(at.bad("thinwire invite"), "and only the owner lets nodes admit")[0]
    at.good(sign + " --run run --out b.cert")
    at.good("thinwire owner import b.cert")
    at.wait("b invites", lambda: at.type("thinwire invite").code == 0)


# ---- a run with an owner ---------------------------------------------------------------------

@situation("owner", "have the run's owner sign one (`thinwire owner sign %s`)",
           "get a new ticket (`thinwire invite` on a node",
           "Have the run's owner sign a certificate", "have the run's owner sign a new one",
           "is no node id: 64 hex digits, as `thinwire status --json`",
           "name the owner's key with --key FILE", "once it has this: `thinwire owner import FILE`",
           "Without an owner no node obeys another", "Give it to any node of the run",
           "owner recall: to which round?", "it is 64 hex digits, as `thinwire rollback --json`",
           "this node has no checkpoint of round", "has an owner and no secret. Leave it out",
           "has an owner and no secret; `thinwire owner revoke`")
def owner(at):
    """Certificates that are missing, expired or of nobody. The owner's key is not where `run new`
    leaves it, as then `init` makes the certificate."""
    at.good("thinwire owner new")
    key = at.json("thinwire owner show owner.key")["key"]
    at.manifest("owned", [f"security.owner={key}"])
    at.good("mkdir far && mv owned far/owned")
    said = at.bad("thinwire init --dir n --run far/owned --data text --secret-file text")
    at.follow(said, "has an owner and no secret. Leave")
    made = at.good("thinwire init --dir n --run far/owned --data text")
    own = at.advice(made, "Have the run's owner", FILE="n.cert")
    said = at.good(own[0] + " --run far/owned --out n.cert")
    at.select("n")
    at.follow(said, "once it has this", FILE="n.cert")
    at.good("thinwire config check")
    said = at.bad("thinwire secret")
    at.follow(said, "no secret; `thinwire owner revoke`", "ab" * 32)
    at.node("a", "far/owned")
    said = at.bad("thinwire config check")
    make, sign, take = at.advice(said, "(`thinwire owner sign %s`)", FILE="a.cert")
    doctor = at.advice(at.bad("thinwire doctor --patience 1"), "get a new ticket (`thinwire inv")
    at.bad(doctor[2] + " abc --run far/owned")
    at.good(sign + " --run far/owned --out a.cert")
    at.good(take)
    at.good("thinwire config check")
    said = at.bad("thinwire owner sign abc --run far/owned")
    at.advice(said, "is no node id")
    at.good("mv owner.key kept.key")
    said = at.bad(sign + " --run far/owned")
    at.advice(said, "name the owner's key with --key")
    at.good(sign + " --run far/owned --key kept.key --out b.cert")
    at.good("mv kept.key owner.key")
    # the certificate of another node
    at.good("cp n/state/admission.cert a/state/admission.cert")
    at.follow(at.bad("thinwire config check"), "have the run's owner sign a new one",
              f"{sign.split()[-1]} --run far/owned --out c.cert")
    # beside the key, init makes one
    at.good("rm a/state/admission.cert; cp owner.key far/owner.key")
    at.good(make)
    at.good("thinwire config check")
    at.good("rm far/owner.key")
    at.good("thinwire owner import c.cert")
    at.good("thinwire config check")
    at.start()
    at.good(f"thinwire status --json | grep -q {sign.split()[-1]}")
    said = at.good(f"thinwire owner revoke {'ab' * 32} --run far/owned --list list")
    at.follow(said, "Give it to any node", FILE="list")
    at.advice_told(at.bad("thinwire owner recall"), "owner recall: to which round?")
    at.advice_told(at.bad("thinwire owner recall 3 --lineage x"), "--lineage %.80s: it is 64")
    at.advice_told(at.bad("thinwire owner recall 999999"), "this node has no checkpoint of round")
    at.manifest("plain", ["security.admission=secret"])
    at.node("s", "plain")
    said = at.bad("thinwire pause --run")
    at.start()
    at.follow(said, "Without an owner no node")
    at.wait("it is paused", lambda: "is paused" in at.status()["sentence"])


@situation("owner", "`thinwire owner show` and `thinwire doctor` tell more",
           "have the owner sign a new one (`thinwire owner sign`), then",
           "then no other node admits this one: have it signed anew",
           "`thinwire owner sign` where the owner's key is, then")
def certificate_ends(at):
    """A certificate that ends soon, and a node that is shut out."""
    at.good("thinwire owner new")
    key = at.json("thinwire owner show owner.key")["key"]
    at.manifest("owned", [f"security.owner={key}"])
    own = at.node("a", "owned")[0]
    at.good(at.shifted(-9 * 86400) +
            f"thinwire owner sign {own} --run owned --days 10 --out a.cert")
    at.good("thinwire owner import a.cert")
    at.start()
    at.wait("it ends", lambda: "certificate_ends" in at.warnings())
    at.wait("its line in the log", lambda: "have it signed anew" in at.good("thinwire logs"))
    at.advice(at.good("thinwire logs"), "have it signed anew")
    at.advice(at.good("thinwire doctor --patience 1"), "`thinwire owner sign` where the owner's")
    sign, take = at.advice(at.good("thinwire status"), "have the owner sign a new one (`thin",
                            FILE="b.cert")
    at.good(f"{sign} {own} --run owned --days 300 --out b.cert")
    at.good(take)
    at.wait("no warning", lambda: "certificate_ends" not in at.warnings())
    at.good(f"thinwire owner revoke {own}")
    at.wait("shut out", lambda: "not_admitted" in at.warnings())
    for command in at.advice(at.good("thinwire status"), "`thinwire owner show` and"):
        if "revoked" not in at.type(command).text:
            raise Wrong(str(at.type(command)))
    at.good(f"thinwire owner revoke {own} --lift")
    at.wait("admitted", lambda: not at.warnings())


# ---- files -----------------------------------------------------------------------------------

@situation("files", "%s does not exist; `thinwire init` makes it",
           "holds no Ed25519 key in PEM form", "can be read by others (mode",
           "`thinwire join` brings it, or copy run.secret", "`thinwire init` makes it")
def keys(at):
    """Keys that are missing, damaged or open to others."""
    at.manifest("run", ["security.admission=secret"])
    at.node("a")
    state = at.folder / "a/state"
    secret = (state / "run.secret").read_text()

    def helped(how, fragment, command):
        for check in ("thinwire config check", "thinwire doctor --patience 1"):
            how()
            at.follow(at.bad(check), fragment, nth=command)
            at.good(check)

    helped((state / "identity.key").unlink, "%s does not exist; `thinwire init`", 0)
    if (state / "run.secret").read_text() != secret:
        raise Wrong("the secret was not kept")

    (state / "identity.key").write_text("nonsense")
    said = at.bad("thinwire config check")
    at.good("mv a/state/identity.key spoilt")
    at.follow(said, "holds no Ed25519 key")
    at.good("thinwire config check")
    helped(lambda: (state / "run.secret").chmod(0o644), "can be read by others", 0)
    helped((state / "run.secret").unlink, "`thinwire join` brings it", 1)
    at.good("mv a/state elsewhere")
    at.follow(at.bad("thinwire doctor --patience 1"), "`thinwire init` makes it")
    at.good("thinwire config check")


# ---- the machine -----------------------------------------------------------------------------

@situation("files", "`thinwire info` lists the devices", "this machine has no such interface",
           "cannot dial from the address of network.bind", "another process listens there",
           "is not an address of this machine (`ip addr`", "raise it: `ulimit -Hn 4096`",
           "`timedatectl set-ntp true`, or any NTP client", "check its spelling, and this machine")
def machine(at):
    """Devices, interfaces, addresses and limits that this machine does not have."""
    _, listen = at.node("a")
    doctor = "thinwire doctor --patience 1"
    at.change("a", r"^\[worker\]$", "[worker]\ndevice = cuda:63")
    if "cpu" not in at.follow(at.bad(doctor), "`thinwire info` lists"):
        raise Wrong("info does not list cpu")
    at.change("a", r"^device = cuda:63$", "device = auto")
    at.good(doctor)
    at.change("a", r"^\[network\]$",
              f"[network]\npeers = 127.0.0.1:{ports.hold()}\ninterface = banana0")
    if "lo" not in at.follow(at.bad(doctor), "this machine has no such interface"):
        raise Wrong("ip link does not list lo")
    at.change("a", r"^interface = banana0$", "interface = lo")
    if "banana0" in at.bad(doctor):
        raise Wrong("the interface is not lo")
    at.change("a", r"^interface = lo$", "bind = 192.0.2.9")
    at.advice_told(at.bad(doctor), "cannot dial from the address of network.bind")
    at.change("a", r"^bind = 192.0.2.9$", "")
    at.change("a", r"^peers = .*$", "peers = no-such-host.invalid:4747")
    command = at.advice(at.bad(doctor), "check its spelling")[0]
    at.good(command + " localhost")
    at.change("a", r"^peers = .*$", "")
    at.change("a", r"^listen = .*$", "listen = 192.0.2.9:4747")
    at.advice_told(at.bad("thinwire config check"), "is not an address of this machine")
    at.change("a", r"^listen = .*$", f"listen = {listen}")
    at.start()
    at.node("b")
    at.change("b", r"^listen = .*$", f"listen = {listen}")
    command = at.advice(at.bad("thinwire config check"), "another process listens there")[0]
    shown = at.good(command)
    if f'"thinwired",pid={at.daemon("a")}' not in shown:
        raise Wrong(f"{command} does not name the process: {shown}")
    at.good("thinwire --config a/node.conf leave")
    at.good("thinwire config check")
    said = at.good(doctor)
    if "or any NTP client" in said:
        at.stand_in("timedatectl", 'test "$*" = "set-ntp true"')
        at.follow(said, "or any NTP client")
    else:
        at.spare("or any NTP client", "the clock of this machine is synchronised")
    said = at.good("ulimit -n 100; ulimit -Hn 400; " + doctor)
    if os.geteuid() != 0:
        at.spare("raise it: `ulimit", "only root can raise it")
        return
    raise_it = at.advice(said, "raise it: `ulimit")[0]
    if at.type("ulimit -Hn 400; " + raise_it).code == 0:  # for root alone, and not everywhere
        at.good(f"ulimit -n 100; ulimit -Hn 400; {raise_it}; {doctor} | grep -q '^OK *open.files'")


# ---- copies and pages ------------------------------------------------------------------------

@situation("pair", "give the copy its own: `thinwire init --new-key` on it, then",
           "give the copy its own (`thinwire init --new-key` there, then",
           "This node is now %s; its old key", "the page is off: set `web =")
def copied(at):
    """A folder of a node that runs on another machine too, and a page that is off."""
    at.manifest("run", ["sync.nodes=2"])
    first = at.node("a")[1]
    at.start()
    said = at.bad("thinwire web")
    port = ports.hold()
    at.change("a", r"^\[api\]$", f"[api]\nweb = 127.0.0.1:{port}")
    at.follow(said, "the page is off")
    at.wait("a page", lambda: at.type("thinwire web").code == 0)
    at.good("cp -r a b; rm -rf b/sockets")
    at.change("b", r"^web = .*$", "")
    at.change("b", r"^listen = .*$",
              f"listen = 127.0.0.1:{ports.hold()}\npeers = {first}")
    at.start("b")
    at.wait("a twin", lambda: "twin" in at.warnings())
    said = at.good("thinwire status")
    new, leave, start = at.advice(said, "on it, then")
    shown = at.good("thinwire peers")
    if "has this node's key" in shown:
        at.advice(shown, "there, then")
    else:
        at.spare("there, then", "peers shows no row of the other machine")
    again = at.advice(at.good(new), "This node is now")
    if again[0] != leave or again[1] != start:
        raise Wrong(f"init advises {again}")
    at.good(leave)
    at.good(start)
    at.wait("they are two", lambda: at.status()["sync"]["alive_peers"] == 1)
    at.wait("no warning", lambda: "twin" not in at.warnings())


@situation("pair", "another machine%s%s has its key and is refused:",
           "give the copy its own: `thinwire init --new-key` there, then restart it")
def copied_peer(at):
    """A copy of a peer's folder that runs on a third machine, as that peer's neighbour sees it."""
    at.manifest("run", ["sync.nodes=3", "security.admission=open"])
    at.node("a")
    first = at.node("c", select=False)[1]
    at.change("a", r"^\[network\]$", f"[network]\npeers = {first}")
    at.start("c")
    at.start("a")
    at.wait("a link", lambda: at.status()["sync"]["alive_peers"] == 1)
    at.good("cp -r a b; rm -rf b/sockets")
    at.change("b", r"^listen = .*$", f"listen = 127.0.0.1:{ports.hold()}")
    at.start("b")
    at.select("c")
    new = at.advice(at.wait("its copy", lambda: only(at.good("thinwire peers"), "has its key")),
                    "has its key and is refused")[0]
    at.select("b")
    said = at.type("thinwire doctor --patience 1").text
    if at.advice(said, "there, then restart it")[0] != new:
        raise Wrong("doctor advises otherwise")
    at.good(new)
    at.good("thinwire leave")
    at.start()
    at.wait("three", lambda: at.status()["sync"]["alive_peers"] == 2)

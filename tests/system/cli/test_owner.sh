#!/usr/bin/env bash
# A run with an owner, by its commands: a key, certificates by the owner and by a node that may admit, a node that is
# revoked while it runs, and the sentence of every refusal. BIN: folder of the built programs; SHIFT: shift_clock.so.
set -euo pipefail
BIN=$1 SHIFT=$2
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8
unset THINWIRE_CONFIG
home=$(mktemp -d /tmp/tw_owner_XXXXXX)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$home"
}
trap finish EXIT
cd "$home"
tw() { "$BIN/thinwire" "$@"; }
at() { tw --config "$1.conf" "${@:2}"; }
fail() {
    echo "FAIL: $*"
    tail -n 20 ./*.log 2>/dev/null || true
    exit 1
}
# expect STATUS PATTERN COMMAND...: its exit status and its outputs together must match.
expect() {
    local status=$1 pattern=$2 rc=0 out
    shift 2
    out=$("$@" 2>&1 </dev/null) || rc=$?
    [[ $rc -eq $status ]] && grep -qE -- "$pattern" <<<"$out" || fail "$*: status $rc (wanted $status /$pattern/): $out"
}
# await WHAT COMMAND...: waits until it succeeds, for 60 s at most.
await() {
    local what=$1
    shift
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    fail "not in time: $what"
}
links() { # NODE COUNT: true when so many peers are linked
    at "$1" peers --json | python3 -c 'import json, sys
peers = json.load(sys.stdin)["peers"]
sys.exit(sum(p["link"] in ("up", "alive") for p in peers) != int(sys.argv[1]))' "$2"
}
admission() { # NODE PYTHON: evaluates the expression on its status
    at "$1" status --json | python3 -c 'import json, sys
a = json.load(sys.stdin)["admission"]
sys.exit(not eval(sys.argv[1]))' "$2"
}
# Prints a port for each line it reads, and holds it to the end of this script.
coproc PORTS { exec python3 "$here/../ports.py"; }
exec 8<&"${PORTS[0]}" 9>&"${PORTS[1]}" # subshells have these too
pids+=("$PORTS_PID")
port() {
    echo >&9
    read -r -u 8 number
    echo "$number"
}
said() { grep -q "$2" "$1.log"; } # NODE PATTERN
start() {
    "$BIN/thinwired" --config "$1.conf" 2>>"$1.log" >>"$1.log" &
    pids+=($!)
    await "node $1" at "$1" status
}

# -- a key and a run
expect 0 'the holder of this file decides which nodes are in the run' tw owner new
[[ $(stat -c %a owner.key) == 600 ]] || fail "mode of owner.key"
expect 7 'owner.key exists already and is kept' tw owner new
key=$(tw owner show owner.key --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["key"])')
seq 3000 >text
shape=(--set model.layers=1 --set model.width=32 --set model.heads=2 --set model.context=32)
# The key is not beside the manifest, as for an owner who keeps it away from the nodes.
mkdir far
tw run new t --data text "${shape[@]}" --set security.owner="$key" --out far/run >/dev/null
tw run new s --data text "${shape[@]}" --set security.admission=secret --out secret-run >/dev/null
expect 0 "admission by certificates of the run's owner" tw run show far/run

# -- nodes
declare -A id
for node in a b c d; do
    port=$(port)
    [[ $node == a ]] && first=$port
    peers=()
    [[ $node == a ]] || peers=(--peers "127.0.0.1:$first")
    at $node init --state-dir $node --run-dir run-$node --run far/run --data text --listen "127.0.0.1:$port" \
        "${peers[@]}" >init.txt
    grep -q "Have the run's owner sign a certificate" init.txt || fail "init says nothing of the owner"
    id[$node]=$(sed -n 's/^This node is //p' init.txt)
    sed -i 's/^\[worker\]/spawn_worker = off\n[worker]/' $node.conf
done
expect 7 "admission.cert does not exist: .*elsewhere have the run's owner sign one" "$BIN/thinwired" --config a.conf
expect 7 'admission.cert does not exist' at a config check
expect 7 'has no certificate|does not exist' at a owner show
expect 1 'certificate.*does not exist' at a doctor --patience 1

# -- refusals, with their reasons
expect 2 'there is no `owner sing`; did you mean `owner sign`' tw owner sing
expect 2 'is no node id: 64 hex digits' tw owner sign abc --run far/run
expect 2 '--may all: it is train or train,admit' tw owner sign "${id[a]}" --run far/run --may all
expect 2 '--days 0: it is 1 to 3650' tw owner sign "${id[a]}" --run far/run --days 0
expect 7 'no.key: No such file.*name the owner' tw owner sign "${id[a]}" --run far/run --key no.key
expect 3 'has no owner' tw owner sign "${id[a]}" --run secret-run
expect 7 "is not the key of the run's owner" tw owner sign "${id[a]}" --run far/run --key a/identity.key
expect 2 'is not a readable key, a certificate, a list or a recall' tw owner show text

# -- the owner signs a, which may admit; a signs b and d; the owner signs c
tw owner sign "${id[a]}" --run far/run --may train,admit --out a.cert 2>/dev/null
expect 7 'shows the certificate of node' at b owner import a.cert
expect 2 'run: it does not begin with' at b owner import far/run
expect 2 'text is too large' at b owner import text
expect 0 'This node is admitted until 20' at a owner import a.cert
at a owner sign "${id[b]}" --key a/identity.key --days 3 >b.cert 2>/dev/null
at a owner sign "${id[d]}" --key a/identity.key >d.cert 2>/dev/null
expect 2 'only the owner lets nodes admit' at a owner sign "${id[b]}" --key a/identity.key --may train,admit
expect 0 'may +train admit' tw owner show b.cert
votes() { # FILE LIST: the certificates of the file give these votes
    tw owner show "$1" --json | python3 -c 'import json, sys
votes = [cert["votes"] for cert in json.load(sys.stdin)["certificates"]]
sys.exit(votes != eval(sys.argv[1]))' "$2" || fail "votes of $1: not $2"
}
votes b.cert '[True, True]'
tw owner sign "${id[c]}" --run far/run --days 400 >c.cert 2>/dev/null
for node in b c d; do expect 0 'admitted until' at $node owner import $node.cert; done
expect 0 'good +certificate$' at b config check
expect 0 'WARN +certificate: no node admits this one' env LD_PRELOAD="$SHIFT" TW_SHIFT_CLOCK_S=864000 \
    ASAN_OPTIONS=verify_asan_link_order=0 "$BIN/thinwire" --config b.conf config check

# -- a certificate can give the right to train without a vote
said=$(tw owner sign "${id[c]}" --run far/run --days 400 --no-vote 2>&1 >c-trains.cert)
[[ $said == *'UTC (it trains, but does not vote), once'* ]] || fail "sign says nothing of the vote"
votes c.cert '[True]'
votes c-trains.cert '[False]'
expect 0 'votes +no' tw owner show c-trains.cert
expect 0 '"votes": false' tw owner sign "${id[c]}" --run far/run --no-vote --json
expect 0 '"votes": true' tw owner sign "${id[c]}" --run far/run --json
expect 0 'it trains, but does not vote\). It votes no more from the next start' at c owner import c-trains.cert
expect 0 'UTC\. It votes from the next start' at c owner import c.cert
at a owner sign "${id[b]}" --key a/identity.key --no-vote >b-trains.cert 2>/dev/null
votes b-trains.cert '[False, True]'
# One who admits without a vote gives none.
tw owner sign "${id[a]}" --run far/run --may train,admit --no-vote --out a-trains.cert 2>/dev/null
expect 0 'does not vote' at a owner import a-trains.cert
expect 0 'valid until .*; it trains, but does not vote' at a doctor --patience 1
at a owner sign "${id[b]}" --key a/identity.key >b-trains.cert 2>/dev/null
votes b-trains.cert '[False, False]'
expect 0 'admitted until' at a owner import a.cert
expect 7 'was admitted by another node' at b owner sign "${id[d]}" --key b/identity.key
expect 0 'good +certificate' at b config check
expect 0 'until +20' at b owner show

# -- they link without a secret; d, with a forged certificate, is refused
for node in a b c; do start $node; done
for node in a b c; do await "links of $node" links $node 2; done
admission a 'a["may_admit"] and not a["renewed_by_nodes"] and a["error"] is None' || fail "status of a"
admission b 'a["renewed_by_nodes"] and 2 * 86400 < a["certificate_left_s"] <= 3 * 86400' || fail "status of b"
cp d.cert forged.cert
python3 - <<'PY'
lines = open("forged.cert").read().split("\n")
lines[1] = lines[1][:32] + "ffffffff00000000" + lines[1][48:]  # until
open("d/admission.cert", "w").write("\n".join(lines))
PY
expect 7 'the signature under the certificate of node .* is false' "$BIN/thinwired" --config d.conf

# -- a ticket of a node that may admit brings a machine in with its own certificate; other nodes cannot invite
expect 1 'by another node, and only the owner' at b invite --address 127.0.0.1:1
expect 1 'does not let it admit others' at c invite --address 127.0.0.1:1
line=$(at a invite --address "127.0.0.1:$first" 2>/dev/null)
expect 4 'not started, as the training text is missing' \
    tw join "$line" --dir e --listen "127.0.0.1:$(port)" --start
expect 0 "e/node.conf now has data = $home/text" tw join "$line" --dir e --data text
expect 0 'e/node.conf is kept as it is: set `data` there' tw join "$line" --dir e --data b.cert
[[ ! -e e/state/run.secret ]] || fail "a secret in a run that has none"
expect 0 'until +20' tw --config e/node.conf owner show
sed -i 's/^\[worker\]/spawn_worker = off\n[worker]/' e/node.conf
start e/node
await "links of e" links e/node 3
at e/node leave >/dev/null
await "e is gone" links a 2
await "e has ended" said e/node "ev=ended exit=0"

# -- the owner revokes c: its links end everywhere, and it does not come back
expect 7 "not the key of the run's owner, and only the owner revokes" at a owner revoke "${id[c]}" --key a/identity.key
expect 0 'List 1 revokes 1 node' at a owner revoke "${id[c]}"
expect 1 'already on the list' at a owner revoke "${id[c]}"
await "the end of c's links" links c 0
for node in a b; do await "links of $node" links $node 1; done
await "c knows" said c 'ev=revoked'
admission c '"is on list 1" in a["error"] and a["revoked_nodes"] == 1' || fail "status of c"
await "b has the list" test -s b/revoked.list
cmp a/revoked.list b/revoked.list || fail "the list changed on its way"
expect 7 'is on list 1 of the revoked' tw owner sign "${id[c]}" --config a.conf

# -- offline: a list is imported from a file, a stale one is refused, and revoking a node that may admit
#    revokes the nodes that it admitted
cp a/revoked.list mine.list
expect 0 'List 2 revokes 2 nodes. Give it to any node' tw owner revoke "${id[d]}" --run far/run --list mine.list
cp mine.list two.list
expect 0 'List 3 revokes 1 node' tw owner revoke "${id[d]}" --lift --run far/run --list mine.list
expect 1 'is not on the list' tw owner revoke "${id[d]}" --lift --run far/run --list mine.list
expect 0 'List 3 revokes 1 node' at b owner import mine.list
await "a has list 3" said a 'ev=revocations list=3'
expect 1 'list 3 of revocations is here already' at b owner import two.list
links a 1 && links b 1 || fail "a lifted revocation broke a link"
expect 0 'List 4 revokes 2 nodes' at a owner revoke "${id[a]}"
await "the end of the last link" links b 0
grep -q 'was admitted by node' b.log ./*.log || fail "b is out for another reason"
echo "all of it as it should be"

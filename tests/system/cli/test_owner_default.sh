#!/usr/bin/env bash
# A run by default: it has an owner without a word about it, its first node invites two guests that train
# with it, no guest can let anybody in, not even by many ids of its own, and one guest is shut out. BIN: folder of
# the built programs.
set -euo pipefail
BIN=$1
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8 COLUMNS=100 PATH=$BIN:$PATH
unset THINWIRE_CONFIG
home=$(mktemp -d /tmp/tw_default_XXXXXX)
cd "$home"
tw() { thinwire --config "$home/$1/node.conf" "${@:2}"; }
finish() {
    for node in one two three; do
        [[ ! -e $node/node.conf ]] || timeout 60 thinwire --config "$home/$node/node.conf" leave >/dev/null 2>&1 || true
    done
    [[ -z ${holder:-} ]] || kill "$holder" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    tail -n 5 "$home"/*/log 2>/dev/null || true
    exit 1
}
# expect STATUS PATTERN COMMAND...: its exit status and its outputs together must match. They stay in `said`.
expect() {
    local rc=0
    "${@:3}" >said 2>&1 </dev/null || rc=$?
    [[ $rc -eq $1 ]] && tr -s ' \n' ' ' <said | grep -qE -- "$2" ||
        fail "${*:3}: status $rc (wanted $1 /$2/): $(cat said)"
}
await() { # EVENT COMMAND...: until it succeeds, for two minutes at most
    local event=$1 end=$((SECONDS + 120))
    until "${@:2}"; do
        [[ $SECONDS -lt $end ]] || fail "not in time: $event"
        sleep 0.2
    done
}
is() { # NODE PYTHON: evaluates the expression on its status, `s`
    tw "$1" status --json 2>/dev/null | python3 -c 'import json, sys
s = json.load(sys.stdin)
sys.exit(not eval(sys.argv[1]))' "$2" 2>/dev/null
}
coproc PORTS { exec python3 "$here/../ports.py"; } # prints a port for each line, and holds it
exec 8<&"${PORTS[0]}" 9>&"${PORTS[1]}"
holder=$PORTS_PID
port() {
    echo >&9
    read -r -u 8 number
    echo "$number"
}
small=(--set model.layers=1 --set model.width=32 --set model.heads=2 --set model.context=32 --set train.batch=8
    --set train.tokens=400m --set sync.nodes=3 --set sync.fragments=1 --set sync.period=20 --set sync.overlap=2)
seq 1 40000 >text

# -- run new: the owner's key is made beside the manifest, once for all runs of the folder
mkdir run
own="admission by certificates of the run's owner.*key of its owner is now in run/owner.key: .*Keep a copy"
expect 0 "$own .*if it is lost, training goes on" \
    thinwire run new numbers --data text "${small[@]}" --out run/numbers.manifest
[[ $(stat -c %a run/owner.key) == 600 ]] || fail "mode of the key"
cp run/owner.key before.key
expect 0 'Its owner is the holder of run/owner.key, as of other runs' thinwire run new other --out run/other.manifest
expect 0 '"owner_key": "run/owner.key"' thinwire run new third --out run/third.manifest --json
cmp run/owner.key before.key || fail "the key was replaced"
expect 3 'exists; a manifest is never overwritten' thinwire run new other --out run/other.manifest
expect 3 'nowhere/x.manifest: No such file' thinwire run new x --out nowhere/x.manifest
# A manifest is refused before a key is made.
expect 3 'did you mean sync.period' thinwire run new x --out x.manifest --set sync.perid=3
[[ ! -e owner.key ]] || fail "a refused run left a key"
# A user who asks for another admission gets it, and no key.
expect 0 'by run secret: everybody who has it is trusted, and one of them can decide the run' \
    thinwire run new s --set security.admission=secret --out s.manifest
expect 0 'anybody who knows the run id' thinwire run new o --set security.admission=open --out o.manifest
[[ ! -e owner.key ]] || fail "a key without an owner"
# A key that is elsewhere is named by its public half; the admission follows.
expect 0 '' thinwire owner new apart.key
grep -o 'security.owner=[0-9a-f]*' said >key || fail "$(cat said)"
expect 0 "of the run's owner" thinwire run new apart --set "$(cat key)" --out apart.manifest
! grep -q 'key of its owner' said || fail "a second key: $(cat said)"
expect 0 '' thinwire plan --set security.admission=owner --nodes 2 --step-time 1s

# -- init beside the key: the node has its certificate at once, and no secret
expect 2 'has an owner and no secret' thinwire init --dir one --run run/numbers.manifest --secret-file text
[[ ! -e one ]] || fail "a refused init left files"
expect 0 'certificate .*/one/state/admission.cert, signed with .*/run/owner.key: this node trains, votes and invites' \
    thinwire init --dir one --name one --run run/numbers.manifest --data text --threads 1 --listen "127.0.0.1:$(port)"
! grep -qE 'secret|sign a certificate|Name a node' said || fail "needless steps are told: $(cat said)"
expect 0 'may train admit votes yes' tw one owner show
expect 0 '"owner_key": ".*/run/owner.key"' thinwire init --dir json --run run/numbers.manifest --data text --json
expect 0 'another key|is now' tw json init --new-key
expect 0 'good certificate' tw json config check
# A node that was made without the manifest: each sentence names the way on, and the way works.
expect 0 'Name the run.s manifest: `thinwire --config .*late/node.conf init --run FILE`' \
    thinwire init --dir late --data text
expect 3 'its node has no manifest: .*`thinwire --config .*late/node.conf init --run FILE` names' tw late init
cp run/third.manifest late/state/run.manifest
expect 7 'admission.cert does not exist: `thinwire init` makes it beside the owner.s key' tw late start
expect 7 'no certificate, and no owner.key of the run is beside .*late/state/run.manifest.*init --run FILE' tw late init
expect 0 'now has run = .*/run/third.manifest.*lacked this: certificate .*, signed with .*/run/owner.key' \
    tw late init --run run/third.manifest
expect 0 'good certificate' tw late config check
expect 2 'is not overwritten' tw late init
expect 2 'is not overwritten' tw late init --run run/other.manifest
grep -qx "run = $PWD/run/third.manifest" late/node.conf || fail "another run in a whole node"
expect 0 'This node is' thinwire init --dir later --data text
cp run/third.manifest later/state/run.manifest
cp run/owner.key later/state/
expect 0 'lacked this: certificate .*, signed with .*/later/state/owner.key' tw later init
expect 0 'good certificate' tw later config check

# -- two guests: each has a certificate of its own, and all three train together
expect 0 'It runs as process' tw one start
for node in two three; do
    tw one invite >line 2>/dev/null
    expect 0 'admitted this machine to run numbers' thinwire join "$(cat line)" --dir $node --name $node --data text \
        --threads 1 --listen "127.0.0.1:$(port)" --start
done
[[ -z $(find . -name run.secret) ]] || fail "a run secret: $(find . -name run.secret)"
cmp -s two/state/admission.cert three/state/admission.cert && fail "two guests with one certificate"
for node in one two three; do
    await "$node mixes" is $node 's["sync"]["mixed_peers"] == 2 and s["sync"]["roster_members"] == 3'
done
is two 'not s["admission"]["may_admit"] and s["admission"]["has_vote"] and s["admission"]["renewed_by_nodes"]' ||
    fail "rights of a guest"
is two '364 * 86400 < s["admission"]["certificate_left_s"] <= 365 * 86400' || fail "life of a guest's certificate"
is one 's["admission"]["may_admit"] and s["admission"]["certificate_left_s"] > 3600 * 86400' ||
    fail "rights of the first"
expect 1 'was admitted by another node, and only the owner lets nodes admit' tw two invite
tw one doctor --patience 1 >said 2>&1 || true
lost='keep a copy on another machine; if it is lost, training goes on'
tr -s ' \n' ' ' <said | grep -q "owner.key .*/run/owner.key: $lost" ||
    fail "doctor says nothing of the key: $(cat said)"

# -- a guest's files and ticket are worth nothing for further ids
for idx in 1 2 3 4 5 6 7 8; do
    expect 10 'ticket' thinwire join "$(cat line)" --dir "more$idx" --data text
done
expect 0 'the daemon has ended' tw two leave
members() { is one 's["sync"]["roster_members"] <= 3 and s["sync"]["roster_voters"] <= 3'; }
number=$(sed -n 's/^listen = 127.0.0.1:\([0-9]*\)$/\1/p' one/node.conf)
sybil run/numbers.manifest two/state "$number" 8 || fail "ids of a guest are let in"
rounds=$(tw one status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["sync"]["rounds_committed"])')
await "rounds go on" is one "s['sync']['rounds_committed'] >= $rounds + 3"
members || fail "seats for the ids of a guest"
python3 - "$(tw one peers --json)" <<'PY' || fail "peers: $(tw one peers)"
import json, sys
peers = json.loads(sys.argv[1])["peers"]
sys.exit(len(peers) != 2 or sum(peer["link"] == "alive" for peer in peers) != 1)
PY

# -- a guest whose certificate is gone gets another one by a new ticket, and comes back
rm two/state/admission.cert
tw one invite >line 2>/dev/null
expect 0 'admitted this machine to run numbers' thinwire join "$(cat line)" --dir two --start
await "two is back" is one 's["sync"]["mixed_peers"] == 2'

# -- one guest is shut out: from anywhere, as the key is found beside the manifest
id=$(is two 'True' && tw two status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["node"]["id"])')
expect 7 'name the owner.s key with --key' tw three owner revoke "$id"
expect 2 'nobody is no node id of 64 hex digits, nor the beginning of one or a name that' tw one owner revoke nobody
(cd / && tw one owner revoke two) >said 2>&1 || fail "$(cat said)"
grep -q 'List 1 revokes 1 node' said || fail "$(cat said)"
grep -q "two is node $id, two" said || fail "no word of who was meant: $(cat said)"
await "two is out" is two 's["sync"]["alive_peers"] == 0 and "on list" in (s["admission"]["error"] or "")'
await "it is shown" grep -q 'shut out by the owner of the run' <(tw one peers)
expect 1 "$id is already on the list" tw one owner revoke "$id"
expect 0 "${id:0:8} is node $id" tw one owner revoke --lift "${id:0:8}"
expect 0 'List 3 revokes 1 node' tw one owner revoke "${id:0:8}"
await "the others go on" is three 's["sync"]["mixed_peers"] == 1 and s["sync"]["roster_members"] == 2'
tw one invite >line 2>/dev/null
rm two/state/admission.cert
expect 10 'revoked' thinwire join "$(cat line)" --dir two
echo "owned by default: two guests trained, none let others in, one was shut out"

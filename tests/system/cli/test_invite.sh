#!/usr/bin/env bash
# From an empty disk to a node that merges, by the guide's commands: invite, join, start. Also every
# error of a ticket with its sentence, secrets replaced while nodes train, and a run with an owner.
# BIN: folder of the built programs.
set -euo pipefail
BIN=$1
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8 COLUMNS=100 PATH=$BIN:$PATH
home=$(mktemp -d /tmp/tw_invite_XXXXXX)
cd "$home"
tw() { thinwire --config "$home/$1/node.conf" "${@:2}"; }
finish() {
    for folder in "$home"/*/; do # daemons that still answer end by themselves
        pid=$(cat "$folder/pid" 2>/dev/null || true)
        [[ -z $pid ]] || kill -9 "$pid" 2>/dev/null || true
    done
    [[ -z ${holder:-} ]] || kill "$holder" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT
fail() {
    echo "FAIL: $*"
    tail -n 5 "$home"/*/log || true
    exit 1
}
# until_true SECONDS COMMAND...: waits until it succeeds.
until_true() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [[ $SECONDS -lt $end ]] || return 1
        sleep 0.2
    done
}
# expect STATUS WORDS COMMAND...: its exit status, and words that it prints.
expect() {
    local rc=0
    "${@:3}" >said 2>&1 </dev/null || rc=$?
    [[ $rc -eq $1 ]] || fail "${*:3}: status $rc, not $1: $(cat said)"
    grep -q -- "$2" said || fail "${*:3}: no word of '$2': $(cat said)"
}
number() { tw "$1" status --json | python3 -c 'import json, sys
at = json.load(sys.stdin)
for key in sys.argv[1].split("."): at = at[key]
print(int(at))' "$2"; }
is_mixing() { [[ $(number "$1" sync.mixed_peers) -ge 1 ]]; }
is_alone() { [[ $(number "$1" sync.alive_peers) -eq 0 ]]; }
is_up() { [[ $(number "$1" sync.alive_peers) -ge 1 ]]; }
# Prints a port for each line it reads, and holds it to the end of this script.
coproc PORTS { exec python3 "$here/../ports.py"; }
exec 8<&"${PORTS[0]}" 9>&"${PORTS[1]}" # subshells have these too
holder=$PORTS_PID
port() {
    echo >&9
    read -r -u 8 number
    echo "$number"
}
start() {
    (cd "$1" && exec thinwired --config node.conf 2>>log) &
    echo $! >"$1/pid"
    until_true 20 tw "$1" status --json >/dev/null 2>&1 || fail "$1 does not answer"
}
stop() {
    kill -TERM "$(cat "$1/pid")"
    until_true 30 is_gone "$1" || fail "$1 does not end"
}
is_gone() { ! kill -0 "$(cat "$1/pid")" 2>/dev/null; }
# The daemon that `join --start` started.
note_pid() { grep -o 'process [0-9]*' "$2" | grep -o '[0-9]*' >"$1/pid"; }
small="--set model.layers=2 --set model.width=32 --set model.heads=2 --set model.context=32
    --set train.batch=8 --set train.tokens=400m --set sync.nodes=2 --set sync.fragments=1
    --set sync.period=20 --set sync.overlap=2"

# -- the first machine
mkdir one
seq 1 40000 >one/text.txt
thinwire data prepare one/text.txt --out one/data --text lines 2>/dev/null >/dev/null
# shellcheck disable=SC2086
thinwire run new numbers --data one/data $small --set security.admission=secret --out one/numbers.manifest >/dev/null
(cd one && thinwire init --dir . --name one --run numbers.manifest --data data --threads 1 \
    --listen "127.0.0.1:$(port)" >/dev/null)
expect 8 'no daemon answers' tw one invite
start one

# -- the second: an empty disk, one line
tw one invite >line 2>words
grep -q '^tw1[0-9a-hjkmnp-tv-z]*$' line || fail "no ticket: $(cat line)"
grep -q 'lets 1 machine into run numbers' words || fail "$(cat words)"
grep -q 'can reach these addresses' words || fail "no word of an address of this machine alone"
# Data of another kind are refused before there is a node, and cost no use of the ticket.
expect 4 'is a text, and the run is trained on a dataset.*No node was made; the same ticket' \
    thinwire join "$(cat line)" --dir two --data one/text.txt
expect 4 'without a dataset: name that of the run, or leave `data` out' \
    thinwire join "$(cat line)" --dir two --data one
[[ ! -e two/node.conf ]] || fail "a refused join left a node"
thinwire join "$(cat line)" --dir two --name two --threads 1 --listen "127.0.0.1:$(port)" \
    --start >said 2>&1 || fail "join: $(cat said)"
note_pid two said
for file in two/state/identity.key two/state/run.secret one/state/*/tickets; do
    [[ $(stat -c %a "$file") == 600 ]] || fail "mode of $file"
done
cmp one/state/run.secret two/state/run.secret
cp line first
cmp <(thinwire run show one/numbers.manifest) <(thinwire run show two/state/run.manifest)
until_true 60 is_mixing two || fail "two does not mix"
tw one invite --list | grep -q 'used  *-  *1 of 1: ' || fail "no list: $(tw one invite --list)"

# -- the same machine again: nothing to do; after a cut in the middle, no second use
expect 0 'is in run numbers already' thinwire join "$(cat line)" --dir two
if grep -q 'thinwire start' said; then fail "a node that runs is to be started: $(cat said)"; fi
expect 0 'two/node.conf is kept as it is: set `listen`, `upload` there' \
    thinwire join "$(cat line)" --dir two --listen 127.0.0.1:1 --upload 5mbit
# `leave` returns when the daemon has ended, so its port and its lock are free.
for _ in 1 2; do
    expect 0 'the daemon has ended' tw two leave
    expect 0 'It runs as process' tw two start
    note_pid two said
done
expect 0 'It runs already' tw two start
# `start` must not take a daemon that is leaving for a running one.
kill -TERM "$(cat two/pid)"
expect 0 'It runs as process' tw two start
note_pid two said
expect 0 'It runs already' tw two start
expect 0 '^ "socket": "/.*sock"' tw two start --json
expect 0 '"message"' tw two leave --json
expect 8 'no daemon answers' tw two leave
# The daemon ends a worker that is not ready yet at once, long before the worker would end by itself.
cat >two/slow <<END
#!/bin/sh
trap 'kill \$!; echo told >>$home/two/end; exit 0' TERM
sleep 30 &
echo begun >$home/two/begun
wait \$!
echo late >>$home/two/end
END
chmod +x two/slow
sed -i "s|^\[node\]|[node]\nworker_path = $home/two/slow|" two/node.conf
expect 0 'It runs as process' tw two start
until_true 60 test -s two/begun || fail "the daemon starts no worker"
expect 0 'the daemon has ended' tw two leave
[[ $(cat two/end) == told ]] || fail "the worker that had not begun: $(cat two/end)"
rm two/node.conf two/state/run.secret two/state/run.manifest
thinwire join "$(cat line)" --dir two --threads 1 --listen "127.0.0.1:$(port)" --start \
    --json >said 2>words || fail "$(cat words)"
python3 -c 'import json; said = json.load(open("said"))
assert said["run"] == "numbers", said' || fail "$(cat said)"
note_pid two words
until_true 60 is_mixing two || fail "two does not mix again"

# -- a failed last checkpoint is reported, and the daemon ends all the same
stop two
# Addresses of before: this node's own, and one that is dead while another one works.
cp two/node.conf two/node.conf.before
own=$(sed -n 's/^listen = //p' two/node.conf)
sed -i "s/^\(peers = .*\)/\1, $own, 127.0.0.1:9/" two/node.conf
tw two doctor >said || true
grep -q "^-  *peer.self  *$own is an address of this machine" said || fail "$(cat said)"
grep -q '^WARN  peer.tcp  *127.0.0.1:9: nothing listens on that port' said || fail "$(cat said)"
mv two/node.conf.before two/node.conf
(trap '' XFSZ && start two)
until_true 60 is_mixing two || fail "two does not mix before its disk is full"
prlimit --pid "$(cat two/pid)" --fsize=4096
expect 1 'leave: .*File too large' tw two leave
expect 0 'It runs as process' tw two start
note_pid two said
until_true 60 is_mixing two || fail "two does not mix after its disk was full"

# -- the state folder of a node names a model: the newer of two checkpoints, with its manifest
for _ in 1 2; do expect 0 . tw one checkpoint; done
newest=$(cd one/state && ls -t */ckpt.?.safetensors | head -1)
expect 0 "thinwire: uses one/state/$newest, step [0-9]*, saved [0-9.]* m*s ago" \
    thinwire eval one/state --data one/data --windows 2
expect 0 "thinwire: uses one/state/$newest, step [0-9]*, saved" thinwire generate "one/state/${newest%/*}" --tokens 4
expect 0 "thinwire: uses one/state/$newest, step" thinwire export one/state --out one/hf
tw one doctor >said || true
grep -q '^OK    checkpoint .*every byte was read, and is intact' said || fail "$(cat said)"
# -- a running node has made steps since its newest checkpoint, which going back would lose
loses() { # steps after the newest generation
    tw one rollback | awk '/the newest; a start continues it/ { if ($4 > 0) found = 1 } END { exit !found }'
}
until_true 30 loses || fail "no steps would be lost: $(tw one rollback)"
# -- without a file it is the node that other commands mean, with its data
expect 0 "uses $home/one/state/$newest, step" tw one eval --windows 2
expect 0 "uses $home/one/state/$newest, step" thinwire generate --config "$home/one/node.conf" --tokens 4
expect 0 "uses $home/one/state/$newest, step" tw one export --out one/again
expect 0 "uses one/state/$newest, step" tw two generate one/state --tokens 4
expect 0 'chooses cpu' tw one info --device cpu
expect 0 'two/state/.*, step' thinwire merge one/state two/state --out one/merged

# -- sizes are printed in a fitting unit
expect 0 'disk.room .*[0-9] [MGT]B free, [0-9.]* [kM]B needed for checkpoints' tw one doctor
expect 0 'memory .*thinwired [0-9.]* [kM]B, thinwire-worker [0-9.]* [kM]B; [0-9.]* [MG]B are free; snap' \
    tw one doctor

# -- invalid tickets; the count of uses survives the daemon
expect 10 'all uses of the ticket are spent (it says: 1 of 1)' thinwire join "$(cat line)" --dir x
kill -9 "$(cat one/pid)"
until_true 30 is_gone one || fail "one does not die"
start one
expect 10 'all uses of the ticket are spent' thinwire join "$(cat line)" --dir x
[[ ! -e x/node.conf && ! -e x/state/run.secret ]] || fail "a refused join left files"
expect 2 'typing error\|mistyped' thinwire join "$(tr 2-9 3-90 <line)" --dir x
expect 2 'begins with tw1' thinwire join one:4747 --dir x
expect 2 'is missing' thinwire join --dir x
expect 2 'another version' thinwire join tw2abc --dir x
tw one invite --uses 5 >line 2>/dev/null
name=$(tw one invite --list --json | grep -o '"ticket": "[0-9a-f]*"' | tail -1 | grep -o '[0-9a-f]\{8\}')
expect 0 'is revoked' tw one invite --revoke "$name"
expect 10 'does not know this ticket' thinwire join "$(cat line)" --dir x
tw one invite >line 2>/dev/null
expect 2 'its end is missing' tw one invite --revoke "$(head -c 60 line)"
expect 2 'give the line of the ticket, or its name' tw one invite --revoke 'attic laptop'
expect 0 'is revoked' tw one invite --revoke "$(cat line)" # by its line
expect 10 'does not know this ticket' thinwire join "$(cat line)" --dir x
tw one invite --expires 1s >line 2>/dev/null
until_true 10 eval 'tw one invite --list | grep -q expired'
expect 10 'the ticket has expired (it says: at ' thinwire join "$(cat line)" --dir x
tw one invite --address "127.0.0.1:$(port)" >line 2>/dev/null
expect 10 'nothing listens on that port' thinwire join "$(cat line)" --dir x
long=$(printf 'a%.0s' {1..60})
expect 0 "^${long}b.example:1 or$" tw one invite --address "${long}a.example:1" --address "${long}b.example:1" \
    --address "${long}c.example:1" --address "${long}d.example:1"
grep -q "^${long}d.example:1; --address" said || fail "no word of the last address: $(cat said)"
expect 2 '1 to 64' tw one invite --uses 0
expect 2 'a time such as' tw one invite --expires soon
expect 2 'host:port' tw one invite --address nowhere
expect 1 'only in a run with an owner' tw one invite --no-vote
expect 2 'another run' env -C "$home" bash -c "sed s/run.manifest/no/ two/node.conf >/dev/null;
    thinwire run new other --set data.tokenizer=bytes --out two/other.manifest >/dev/null;
    mkdir -p y; sed 's|^run = .*||; s|^state_dir = .*|state_dir = $home/y/state|' two/node.conf >y/node.conf;
    mkdir -p y/state; cp two/other.manifest y/state/run.manifest;
    thinwire join '$(cat line)' --dir y"

# The manifest of another run is not overwritten, nor is its secret.
mkdir -p z/state && cp two/other.manifest z/state/run.manifest && echo mine >z/state/run.secret
tw one invite >line 2>/dev/null
expect 3 'not the manifest of this run' thinwire join "$(cat line)" --dir z
cmp two/other.manifest z/state/run.manifest
grep -q mine z/state/run.secret || fail "the secret of another run is gone"

# -- a secret is replaced while both train
old=$(tw one secret | head -1 | cut -c1-8)
expect 0 'in use, and accepted' tw one secret add
cp one/state/run.secret fresh
expect 0 'in use, and accepted' tw two secret add fresh
new=$(tw one secret | sed -n 2p | cut -c1-8)
knows() { grep -q "ev=secret_changed used=$2 secrets=$3" "$1/log"; }
for node in one two; do until_true 10 knows $node "$old" 2 || fail "$node did not look"; done
# A used ticket cannot fetch the new secret.
mkdir -p again/state
cp two/state/identity.key again/state/
expect 10 'does not know this ticket' thinwire join "$(cat first)" --dir again
for node in one two; do
    tw $node secret use "$new" >/dev/null
    until_true 10 knows $node "$new" 2 || fail "$node does not use $new"
done
for node in one two; do
    tw $node secret remove "$old" >/dev/null
    until_true 10 knows $node "$new" 1 || fail "$node keeps $old"
done
until_true 60 is_up two || fail "no link by the new secret"
until_true 60 is_mixing two || fail "no mixing by the new secret"
expect 2 'the only one' tw one secret remove "$new"
expect 2 'no secret has the mark' tw one secret use 00000000
stop two

# -- a secret that is replaced while the inviter is down, with the date of a backup
tw one invite >line 2>/dev/null
expect 0 'admitted this machine' thinwire join "$(cat line)" --dir three --threads 1
stop one
# A file of a release without marks of secrets loses no tickets, and gets the marks.
ended=$(grep -c ev=tickets_ended one/log)
sed -i '/^secret /d' one/state/*/tickets
start one
until_true 10 grep -q '^secret ' one/state/*/tickets || fail "the secrets are not noted"
[[ $(grep -c ev=tickets_ended one/log) -eq $ended ]] || fail "tickets of an older build are lost"
stop one
tw one secret add >/dev/null 2>&1
touch -d '2020-01-01' one/state/run.secret
start one
[[ $(grep -c ev=tickets_ended one/log) -eq $((ended + 1)) ]] || fail "used tickets stay good"
stop one

# -- a run with an owner: no secret, a certificate by the inviter
mkdir own
# shellcheck disable=SC2086
thinwire run new owned --data one/data $small --out own/owned.manifest >/dev/null
(cd own && thinwire init --dir . --name own --run owned.manifest --data ../one/data --threads 1 \
    --listen "127.0.0.1:$(port)" >/dev/null)
start own
tw own invite >line 2>/dev/null
thinwire join "$(cat line)" --dir guest --threads 1 --listen "127.0.0.1:$(port)" --start >said 2>&1 ||
    fail "join of a run with an owner: $(cat said)"
note_pid guest said
[[ ! -e guest/state/run.secret && -e guest/state/admission.cert ]] || fail "no certificate"
until_true 60 is_mixing guest || fail "guest does not mix"
tw guest invite >line 2>said && fail "who may not admit invited"
grep -q 'lets nodes admit' said || fail "why not? $(cat said)"

# -- its guest may train without a vote, also when the inviter restarts in between
tw own invite --no-vote >line 2>said
grep -q 'into run owned without a vote' said || fail "invite says nothing of the vote: $(cat said)"
tw own invite --list | grep -q '0 of 1 (no vote)$' || fail "the list says nothing of the vote"
stop own
start own
thinwire join "$(cat line)" --dir trainer --threads 1 --listen "127.0.0.1:$(port)" >said 2>&1 ||
    fail "join without a vote: $(cat said)"
grep -q 'run owned (it trains, but does not vote)' said || fail "join says nothing of the vote: $(cat said)"
tw trainer owner show --json | grep -c '"votes": false' | grep -qx 1 || fail "votes of the guest"
thinwire join "$(cat line)" --dir trainer >said 2>&1 || fail "join again: $(cat said)"
stop own
stop guest
echo "invited, joined, mixed"

#!/usr/bin/env bash
# Sentences and exit statuses of `thinwire`, from the outside. BIN: folder of the built programs,
# SOURCE: the repository.
set -euo pipefail
BIN=$1
SOURCE=$2
export LC_ALL=C.UTF-8 COLUMNS=160
unset THINWIRE_CONFIG
home=$(mktemp -d /tmp/tw_cli_XXXXXX)
server=
finish() {
    exec 7>&- || true
    [[ -z $server ]] || wait "$server" || true
    rm -rf "$home"
}
trap finish EXIT
cd "$home"
failures=0

# expect STATUS PATTERN COMMAND...: both outputs together match, and the status is that.
expect() {
    local status=$1 pattern=$2 rc=0 out
    shift 2
    out=$("$@" 2>&1 </dev/null) || rc=$?
    if [[ $rc -ne $status ]] || ! grep -qE -- "$pattern" <<<"$out"; then
        echo "FAIL: $*: status $rc (wanted $status), wanted /$pattern/, got:"
        sed 's/^/    /' <<<"$out"
        failures=$((failures + 1))
    fi
}
tw() { "$BIN/thinwire" "$@"; }

# -- words
expect 0 '^thinwire - train one language model' tw
expect 0 '^thinwire - train one language model' tw --help
expect 0 '^thinwire [0-9.]+, protocol thinwire/1' tw --version
expect 0 '"version"' tw version --json
expect 2 'no command `stauts`; did you mean `status`' tw stauts
expect 2 'no command `banana`; `thinwire help` lists them' tw banana
expect 2 'status: `--wacth` is unknown; did you mean --watch' tw status --wacth
expect 2 '--color=blue: it is auto, always or never' tw status --color=blue
expect 2 '--every 0: seconds' tw status --every 0
expect 0 '^thinwire status ' tw help status
expect 0 '^thinwire status ' tw status --help
expect 0 '^thinwire data ' tw data --help
expect 0 '^thinwire train ' tw train --help
expect 2 'did you mean `status`' tw help statsu
expect 0 '  9  stored state' tw help exit-codes
# Every command has a page, which -h prints too, and a place in the overview.
verbs=$(sed -En 's/^    (VERB|PROGRAM)\(([a-z]+), .*/\2/p' "$SOURCE/daemon/cli/common/cli.h")
[[ $(wc -w <<<"$verbs") -ge 38 ]] || { echo "FAIL: VERBS"; failures=$((failures + 1)); }
for verb in $verbs; do
    expect 0 "^thinwire $verb" tw help $verb
    expect 0 "(^|[ ,])$verb" tw help
    [[ $verb == help ]] || expect 0 "^thinwire $verb" tw $verb -h
done
expect 0 '^thinwire - train one language model' tw -h
expect 2 'no command `stat`; did you mean `status`' tw stat
expect 2 'no command `drain`; did you mean `thinwire leave`' tw drain
expect 2 'no command `stop`; did you mean `thinwire leave`' tw stop
expect 2 'did you mean gpt2-124m\?' tw run new x --model 124m
expect 2 'did you mean gpt2-350m or llama-350m\?' tw run new x --model 350m

# -- the demo of an installed package: Python files beside the programs, and their folder
expect 1 'share/thinwire/demo/demo.py: No such file .*; in a folder of the sources, type ./deploy/demo' tw demo
mkdir -p "$home/usr/bin" "$home/usr/share/thinwire/demo" "$home/empty"
cp "$BIN/thinwire" "$home/usr/bin/"
cp "$SOURCE"/deploy/demo*.py "$home/usr/share/thinwire/demo/"
expect 2 'demo: it has no --json' "$home/usr/bin/thinwire" demo --json
expect 1 'python3 is not installed: .* and bible-kjv' env PATH="$home/empty" "$home/usr/bin/thinwire" demo
expect 2 'thinwire demo: error: --nodes must be at least 2' "$home/usr/bin/thinwire" demo --nodes 1
expect 1 'text.txt has 6 bytes, and the demo needs 1,000,000' \
    bash -c 'echo short >text.txt; "$1" demo --text text.txt' - "$home/usr/bin/thinwire"
mkdir "$home/only"
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$home/only/python3"
expect 1 'no text to train on. .*bible-kjv' env PATH="$home/only" "$home/usr/bin/thinwire" demo

# -- every key that --set takes, with unit, range and default, as one list and as a table
expect 0 '^train.lr = [0-9.]+$' "$BIN/thinwire" run keys
expect 0 '^    number: 0.000001 to 1, such as 0.05 or 5%$' "$BIN/thinwire" run keys
"$BIN/thinwire" run keys | awk 'length > 80 { print "wide: " $0; exit 1 }'
expect 2 'run keys: `--all` is unknown; `thinwire help run` explains it' "$BIN/thinwire" run keys --all
"$BIN/thinwire" run keys --json >"$home/keys.json"
"$BIN/thinwire" run new k --out "$home/k.manifest" >/dev/null
python3 - "$home" <<'PY'
import json, sys
rows = {row["key"]: row for row in json.load(open(sys.argv[1] + "/keys.json"))}
lines = [line.split(" = ")[0] for line in open(sys.argv[1] + "/k.manifest") if " = " in line]
keys = [line for line in lines if "." in line and not line.startswith("#")]
unsaid = {"sync.jury", "data.loss"}  # of runs before them: 0 and all are not written
assert set(keys) | unsaid == set(rows), set(keys) ^ set(rows)
assert rows["train.tokens"]["unit"] == "tokens" and "500k" in rows["train.tokens"]["takes"]
assert rows["sync.grace"]["unit"] == "seconds", rows["sync.grace"]
assert rows["train.schedule"]["words"] == ["cosine", "wsd", "linear"], rows["train.schedule"]
assert rows["data.sha256"]["default"] == "any" and "words" not in rows["model.layers"]
assert all(row["about"] and row["takes"] and row["default"] for row in rows.values())
PY

# -- the simulator names the option whose value it refuses
expect 2 "'0' is no value for --nodes; see --help" tw sim --seed 1 --nodes 0 --hours 1
expect 2 "'x' is no value for --hours; see --help" tw sim --hours x

# -- completion: commands, their words, options and names come from the programs themselves
complete_of() {
    env PATH="$BIN:$PATH" bash -c '. "$0"; COMP_WORDS=("${@:1}"); COMP_CWORD=$(($# - 1)); _thinwire
        echo "${COMPREPLY[*]}"' "$SOURCE/deploy/completion/thinwire" "$@"
}
expect 0 '^start status$' complete_of thinwire sta
expect 0 '^config$' complete_of thinwire --config my.conf conf
expect 0 '^codecs keys models new presets show$' complete_of thinwire run ''
expect 0 '^--threads$' complete_of thinwire train --thr
expect 0 '^--socket --start --state-dir$' complete_of thinwire join --s
expect 0 '^llama-15m$' complete_of thinwire run new x --model llama-15
expect 0 '^sparseloco streaming$' complete_of thinwire run new --preset s
expect 0 '^$' complete_of thinwire eval model.

# -- the same for zsh and fish, where these are installed
zsh_of() {
    env PATH="$BIN:$PATH" zsh -f -c 'compadd() { [[ $1 == -- ]] && shift; print -l -- "$@" }
        _files() { : }
        words=("${@:2}")
        CURRENT=${#words}
        complete_words() { source "$1" }
        print -- $(complete_words "$1" | grep -- "^${words[-1]}" | sort -u)' zsh \
        "$SOURCE/deploy/completion/_thinwire" "$@"
}
fish_of() { env PATH="$BIN:$PATH" fish --no-config -c 'source $argv[1]; echo (complete -C $argv[2])' \
    "$SOURCE/deploy/completion/thinwire.fish" "$*"; }
for shell in zsh fish; do
    command -v $shell >/dev/null || continue
    expect 0 '^start status$' ${shell}_of thinwire sta
    expect 0 '^config$' ${shell}_of thinwire --config my.conf conf
    expect 0 '^codecs keys models new presets show$' ${shell}_of thinwire run ''
    expect 0 '^--threads$' ${shell}_of thinwire train --thr
    expect 0 '^llama-15m$' ${shell}_of thinwire run new x --model llama-15
    expect 0 '^sparseloco streaming$' ${shell}_of thinwire run new --preset s
done

# -- no daemon
expect 8 '`thinwire init` or `thinwire join` makes a node' env -u THINWIRE_CONFIG "$BIN/thinwire" status
expect 8 'no daemon answers on .*/none.sock; start it' tw status --socket "$home/none.sock"
expect 8 'no daemon answers' tw checkpoint --socket "$home/none.sock"
expect 2 'gone.conf: No such file or directory; `thinwire init`' tw status --config ./gone.conf

# -- init
yes 'And it came to pass.' | head -c 4000 >text.txt || true
for bad in '--run nothing.manifest:--run: .*nothing.manifest: No such file' '--run text.txt:--run: .*text.txt' \
    '--data nothing:--data: .*nothing: No such file' '--listen 300.1.1.1:99:--listen: .*300.1.1.1' \
    '--upload 5:--upload: `5` lacks its unit' '--peers a:--peers: '; do
    flags=${bad%%:--*}
    expect 2 "${bad#"$flags":}" tw --config bad.conf init --state-dir bad $flags
    [[ ! -e bad && ! -e bad.conf ]] || { echo "FAIL: init $flags left files"; failures=$((failures + 1)); }
done
expect 0 'for the start: 192.0.2.1:4747 is not an address of this machine' \
    tw --config later.conf init --state-dir later --data text.txt --listen 192.0.2.1:4747
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >given.secret
expect 0 'This node is [0-9a-f]{64}' tw --config node.conf init --listen 127.0.0.1:0 --name attic \
    --state-dir state --run-dir run --data text.txt --peers a.example:4747 --upload 5mbit \
    --secret-file given.secret
for file in state/identity.key state/run.secret; do
    [[ $(stat -c %a $file) == 600 ]] || { echo "FAIL: mode of $file"; failures=$((failures + 1)); }
done
cp node.conf before.conf
cp state/identity.key before.key
expect 3 'node.conf exists, but its node has no manifest' tw --config node.conf init
expect 7 'identity.key exists and is not overwritten' tw --config other.conf init --state-dir state
cmp node.conf before.conf && cmp state/identity.key before.key
[[ ! -e other.conf ]] || { echo "FAIL: a refused init left a file"; failures=$((failures + 1)); }
expect 2 'upload: `5` lacks its unit' tw --config bad.conf init --state-dir s2 --upload 5
[[ ! -e s2 && ! -e bad.conf ]] || { echo "FAIL: a bad init left files"; failures=$((failures + 1)); }
expect 0 'as given' tw --config two.conf init --state-dir two --secret-file state/run.secret
cmp state/run.secret two/run.secret
expect 2 'init: `--nme` is unknown; did you mean --name' tw --config x.conf init --nme x


# -- init in one folder; join, invite and secret without other nodes
expect 0 'configuration *.*/place/node.conf' tw init --dir place --name here --secret-file given.secret
expect 0 '^    export THINWIRE_CONFIG=/.*/hint/node.conf$' tw init --dir hint
expect 0 '^    thinwire start$' tw init --dir hint2
(eval "$(tw init --dir "it's a node" | grep export)" && [[ $THINWIRE_CONFIG == "$home/it's a node/node.conf" ]]) ||
    { echo "FAIL: the line to export is not quoted"; failures=$((failures + 1)); }
THINWIRE_CONFIG=$home/hint3/node.conf tw init --dir "$home/hint3" | grep -q export &&
    { echo "FAIL: what is exported already is told"; exit 1; }
[[ -e place/state/identity.key ]] || { echo "FAIL: no place/state"; failures=$((failures + 1)); }
expect 0 '' grep -q '^state_dir = state$' place/node.conf
expect 8 'no daemon answers' tw --config ./place/node.conf invite
expect 2 'uses 1000: machines it lets in, 1 to 64' tw --config ./place/node.conf invite --uses 1000
expect 2 'expires 5: a time such as' tw --config ./place/node.conf invite --expires 5
expect 2 'address a: it is host:port' tw --config ./place/node.conf invite --address a
expect 2 'did you mean --uses' tw --config ./place/node.conf invite --use 3
expect 2 'the line of `thinwire invite` is missing' tw join
expect 2 'no ticket, which begins with tw1' tw join a.example:4747
expect 2 'from a file: thinwire join - <FILE' tw join "$SOURCE/README.md"
expect 2 'its end is missing|part of it is missing|shorter' tw join tw1abc
expect 2 'did you mean --start' tw join tw1abc --strat
expect 0 '^[0-9a-f]{8}  in use' tw --config ./place/node.conf secret
expect 0 'in use, and accepted' tw --config ./place/node.conf secret add
expect 2 'there are 2 already' tw --config ./place/node.conf secret add
expect 2 '`drop` is unknown; it is show, add, use or remove' tw --config ./place/node.conf secret drop
[[ $(grep -cE '^[0-9a-f]{64}$' place/state/run.secret) -eq 2 ]] || {
    echo "FAIL: two secrets"
    failures=$((failures + 1))
}
first=$(head -1 place/state/run.secret)
if tw --config ./place/node.conf secret | grep -q "$first"; then
    echo "FAIL: a secret is shown"
    failures=$((failures + 1))
fi

many=$(seq -s, -f 'node%g.example.org:4747' 30)
expect 0 'This node is' tw --config many.conf init --state-dir many --peers "$many"
[[ $(grep -c '^peers = node' many.conf) -eq 30 ]] || { echo "FAIL: 30 peers"; failures=$((failures + 1)); }
expect 0 '^peers = node30.example.org:4747' tw --config ./many.conf config show
tw --config ./many.conf config show --json | python3 -c 'import json, sys
shown = json.load(sys.stdin)
assert shown["network"]["peers"][29] == "node30.example.org:4747", shown["network"]["peers"]
assert shown["node"]["threads"] == "0" and shown["network"]["interface"] == "", shown' ||
    { echo "FAIL: config show --json"; failures=$((failures + 1)); }

# -- config
expect 0 '^upload = 5mbit$' tw --config node.conf config show
expect 3 'run.manifest: No such file or directory; `thinwire run new`' \
    tw --config node.conf config check
expect 2 'did you mean `config check`' tw config chekc
printf '[node]\nname = x\ntreads = 4\n' >broken.conf
expect 2 'broken.conf:3: there is no key `treads` in \[node\]; did you mean `threads`' \
    tw config check ./broken.conf
expect 2 'broken.conf:3:' env THINWIRE_CONFIG=./broken.conf "$BIN/thinwire" status
tw config example | diff - "$SOURCE/deploy/examples/thinwire.conf" ||
    { echo "FAIL: deploy/examples/thinwire.conf is not what config example prints"; exit 1; }

expect 8 'start it \(`thinwire --config ./node.conf start`\)' tw --config ./node.conf status
expect 3 'no run manifest' tw --config ./place/node.conf start
expect 3 'thinwired did not start; its log is ./place/log' tw --config ./place/node.conf start --json
[[ $(tw --config ./place/node.conf start 2>&1 | grep -c 'no run manifest') == 1 ]] ||
    { echo "FAIL: a start printed the log of earlier ones"; failures=$((failures + 1)); }
expect 2 'gone.conf: No such file or directory' tw --config ./gone.conf start
expect 2 'limit: `-3` is unknown' tw --config ./place/node.conf limit -3
expect 2 'start: `now` is too much' tw --config ./place/node.conf start now
expect 8 'no daemon answers' tw --config ./place/node.conf leave

# -- devices
expect 0 '^device = cpu chooses cpu$' tw info --device cpu
expect 11 'device = cuda:63, but ' tw info --device cuda:63
expect 2 '--device gpu: it is auto, cpu, cuda or cuda:N' tw info --device gpu
expect 0 '"chosen": "cpu"' tw info --device cpu --json

# -- run
yes 'And it came to pass in those days that there went out a decree.' | head -c 40000 >text.txt || true
small=(--set model.layers=1 --set model.width=16 --set model.heads=2 --set model.context=16
    --set train.batch=2 --set train.tokens=4000 --set train.warmup_tokens=100)
expect 0 'outer steps? (is|are) planned' tw run new bible --explain --data text.txt \
    --out state/run.manifest "${small[@]}" \
    --set security.admission=secret
# -- and the next step: a node of the run, or the one that waits for this manifest
next_of() { tw "$@" | sed -n '/^Its node/p; s/^    \([^ ].*thinwire .*\|thinwire .*\|export .*\)$/\1/p'; }
is() { [[ $1 == "$2" ]] || { echo "FAIL: got '$1', wanted '$2'"; failures=$((failures + 1)); }; }
where=--dir
[[ $(id -u) -ne 0 ]] || where=--config
is "$(next_of run new other --data text.txt --out "o m" "${small[@]}" | sed 's/^sudo //')" \
    "thinwire init $where other --run '$home/o m' --data $home/text.txt"
tw --config ./bare.conf init --state-dir bare >/dev/null
is "$(next_of --config ./bare.conf run new bare --data text.txt --out bare/run.manifest "${small[@]}")" \
    "Its node names no text yet: write \`data = $home/text.txt\` below [node] of ./bare.conf.
export THINWIRE_CONFIG=./bare.conf
thinwire init
thinwire start"
expect 0 'never merge: lower sync.period' tw run new x --explain --out n0.manifest --set sync.period=100 \
    --set sync.fragments=1 --set train.batch=8 --set train.tokens=200k
expect 0 'few merges gain little over a node alone' tw run new x --explain --out n4.manifest \
    --set sync.period=100 --set sync.fragments=1 --set train.batch=8 --set train.tokens=2m
expect 0 'too few for ecsq05, which sends most of a change in later merges' tw run new x --explain \
    --preset streaming --out c40.manifest --set sync.codec=ecsq05 --set sync.feedback=0.95 --set train.tokens=1000k
expect 0 '^sync.feedback_local = 0.6$' cat c40.manifest
expect 3 'sync.feedback_local \(0.5\) needs sync.feedback' tw run new x --explain --out x.manifest \
    --preset streaming --set sync.feedback_local=0.5
expect 3 'exists; a manifest is never overwritten' tw run new bible --out state/run.manifest
expect 3 'did you mean sync.period' tw run new x --explain --out x.manifest --set sync.perid=30
expect 3 'Bible!' tw run new 'Bible!' --out x.manifest
expect 2 '--set sync.period: write --set key=value' tw run new x --explain --set sync.period
expect 2 'run new: name the run' tw run new
expect 2 '--budget 20: `20` lacks its unit; write 2mbit of upload' tw run new x --explain --budget 20
expect 2 '--step-time 0.8: write the time of an inner step with its unit' tw run new x --explain --step-time 0.8
expect 2 'use one of them' tw run new x --explain --step-time 1s --steps-per-s 1
expect 3 '`thinwire run keys` lists them all' tw run new x --explain --set bogus.whatever=1
# without the time of a step, values that depend on it are called a guess
expect 0 '10 steps/s is a guess: give the time of a step' tw run new x --explain --out g1.manifest
expect 0 '10 steps/s is a guess' tw run show g1.manifest
expect 1 '' grep -q guess <(tw run show g1.manifest --step-time 250ms)
expect 1 '' grep -q guess <(tw run new x --explain --out g2.manifest --set sync.pace=clock --step-time 1s)
# each node has its own text: its weight, and the cost of plain averaging
expect 0 'a fast node trains more between two merges, so its text counts' tw run show g1.manifest
expect 1 '' grep -q 'merge worse without outer momentum' <(tw run show g1.manifest)
expect 0 'merge worse without outer momentum' tw run new x --explain --out g3.manifest \
    --set sync.outer_momentum=0
expect 1 '' grep -q 'its text counts' <(tw run show state/run.manifest)
# a solo run sends nothing: no budget is too small, and no step is measured
expect 0 'Budget    any will do: nothing is sent' tw run new x --explain --out s1.manifest \
    --set sync.topology=solo --budget 8kbit
expect 1 '' grep -q measured <(tw run new x --explain --out s2.manifest --json --set sync.topology=solo --budget 1mbit)
expect 0 '"path": "s3.manifest"' tw run new x --explain --out s3.manifest --json --set sync.topology=solo --budget 8kbit
expect 0 'sync.lead = 0$' cat s1.manifest
# traffic is shown with the bits that the budget leaves
expect 0 '\(auto at [1-3]\.[0-9] bits, results' tw run new x --explain --preset local-sgd --budget 2mbit \
    --set sync.codec=auto --set sync.period=30 --step-time 100ms --out w1.manifest
expect 0 'read 0\.00?[1-9] times' tw run new x --explain --data text.txt --set train.tokens=2k \
    --set train.warmup_tokens=0 --out t1.manifest --set train.batch=1
expect 0 '30 days are .* up and .* down' tw run new x --explain --out b1.manifest --budget 20mbit \
    --model gpt2-124m --step-time 0.8s
expect 0 'sync.codec = (ecsq1|topk256|int4)' cat b1.manifest
# a line chooses how the nodes merge, and the expected loss is an interval
expect 0 'of the line; .* expected loss \+[0-9.]+ % \([0-9.]+ to [0-9.]+\)' tw run new x --upload 20mbit \
    --model gpt2-124m --step-time 0.8s --nodes 8 --set train.tokens=2g --out l1.manifest
expect 0 '"expected_loss_ratio": 0\.' tw run new x --upload 20mbit --model gpt2-124m --step-time 0.8s \
    --json --out l2.manifest
expect 0 'sync.preset = eager' cat <(tw run new x --upload 1mbit --model gpt2-124m --step-time 0.8s \
    --preset eager --out l3.manifest >/dev/null; cat l3.manifest)
expect 2 '--upload 20: ' tw run new x --upload 20 --out x.manifest
expect 0 '"month_up_bytes": [1-9][0-9]{9,}' tw run new x --explain --out b5.manifest --budget 20mbit \
    --model gpt2-124m --step-time 0.8s --json
expect 0 '"steps_per_s": 1.25' tw run new x --explain --out b6.manifest --budget 20mbit \
    --model gpt2-124m --step-time 0.8s --json
expect 1 '' grep -q month_up_bytes <(tw run new x --explain --out b7.manifest --json)
expect 0 'sync.feedback = 0.95' cat b1.manifest
expect 0 'topk(64|32), results in sparse8' tw run new x --explain --out b2.manifest --budget 200kbit \
    --model gpt2-124m --step-time 0.8s --set sync.nodes=8
expect 0 'each every 30 steps' tw run new x --explain --out b3.manifest --budget 100mbit \
    --model gpt2-124m --step-time 0.8s --set sync.period=30 --set sync.codec=int8
expect 0 'sync.codec = int8' cat b3.manifest
expect 3 'nothing fits 5.00 GB/month: even every' tw run new x --explain --out b4.manifest \
    --budget 5GB/month --model gpt2-124m --step-time 0.8s
expect 3 'even every 30 steps in the given codecs .* do not set the codecs, or' tw run new x --explain \
    --out b4.manifest \
    --budget 1mbit --model gpt2-124m --step-time 0.8s --set sync.period=30 --set sync.codec=int8
expect 1 '' test -e b4.manifest
# of period and fragments, the one that is not set adapts: also in the example of `run presets`
expect 0 '--set sync.period=50' tw run presets
for preset in diloco streaming eager noloco co2 decoupled sparseloco local-sgd btm; do
    for period in 1 2 7 50; do
        expect 0 "sync.period = $period\$" bash -c "rm -f p.manifest; '$BIN/thinwire' run new x \
            --preset $preset --set sync.period=$period --out p.manifest && cat p.manifest"
    done
done
expect 0 '2 fragments: the 3 of the preset do not divide sync.period = 50' tw run new x --explain \
    --preset streaming --set sync.period=50 --out p50.manifest
expect 3 'sync.period \(50\) must be a multiple of sync.fragments \(3\): 51 would do' tw run new x --explain \
    --preset streaming --set sync.period=50 --set sync.fragments=3 --out x.manifest
# keys without effect are refused
expect 3 'sync.interval has no effect where sync.pace = steps.* set sync.pace = clock' tw run new x --explain \
    --set sync.interval=2s --out x.manifest
expect 3 'sync.quorum has no effect where sync.topology = pair' tw run new x --explain --preset noloco \
    --set sync.quorum=2 --out x.manifest
expect 3 'sync.codec has no effect where sync.topology = solo' tw run new x --explain --set sync.lead=0 \
    --set sync.topology=solo --set sync.codec=int8 --out x.manifest
expect 3 'sync.quorum \(5\) is more than sync.nodes \(4\)' tw run new x --explain --set sync.quorum=5 --out x.manifest
# with the clock, the interval follows from the time of a step, or the period from the interval
expect 0 'a round every 2.5 s, so each fragment every 30 steps of' tw run new x --explain \
    --preset streaming --set train.tokens=8m --set sync.pace=clock --step-time 250ms --out c1.manifest
expect 0 'sync.interval = 2.5s' cat c1.manifest
expect 0 'at 4 steps/s' tw run show c1.manifest
expect 0 'a round every 2.0 s, so each fragment every 24 steps' tw run new x --explain \
    --preset streaming --set sync.pace=clock --set sync.interval=2s --step-time 250ms --out c2.manifest
expect 0 'a node that takes 200 ms per step' tw run new x --explain --set sync.pace=clock \
    --preset streaming --set sync.interval=2s --set sync.period=30 --out c3.manifest
expect 0 'takes longer than 7.5 s per step is in hardly any' tw run new x --explain --preset diloco \
    --set train.tokens=8m --set sync.pace=clock --step-time 250ms --out c4.manifest
expect 0 'sync.pace = clock suits very unequal nodes' tw run new x --explain --preset decoupled --out c5.manifest
expect 0 'a round every [0-9]+ s, so each fragment every [0-9]+ steps' tw run new x --explain --set sync.pace=clock \
    --step-time 250ms --budget 100kbit --set train.tokens=100m --out c6.manifest
# without the time of a step it is measured, if anything depends on it
expect 0 'a step takes .* here, measured \(' tw run new x --explain "${small[@]}" --budget 100mbit --out m1.manifest
expect 0 '"measured_step_s": [0-9.e-]+' tw run new x "${small[@]}" --set sync.pace=clock --json --out m2.manifest
expect 1 '' grep -q measured <(tw run new x --explain "${small[@]}" --json --out m3.manifest)
expect 2 'cannot be measured here: .*; give it, such as --step-time 0.8s' tw run new x --explain \
    --model llama-8b --budget 20mbit --out x.manifest
# runs of any model, from files of the real library
files=$SOURCE/tests/data/safetensors count=(--batch 8 --context 128 --tokens 10m)
expect 0 'any, by your own trainer: 54 tensors, 1,737 parameters' tw run new x --explain "${count[@]}" \
    --tensors "$files/gpt2.safetensors" --out any1.manifest
list='model.tensors = h.\{0-11\}.attn.c_attn.bias:12 h.\{0-11\}.attn.c_attn.weight:4x12'
list+=' h.\{0-11\}.ln_1.weight:4 h.\{0-11\}.mlp.c_fc.weight:4x16 ln_f.bias:4 ln_f.weight:4'
list+=' logit_scale:1 patch.weight:4x3x2x2x2 wpe.weight:8x4 wte.weight:16x4$'
expect 0 "$list" cat any1.manifest
expect 0 'h.\{0-11\}.attn.c_attn.weight  4 x 12' tw run show any1.manifest
expect 0 "Data      the trainer's own" tw run show any1.manifest
expect 0 '"parameters": 1737' tw run show any1.manifest --json
expect 0 '46 of the 46 of .*moe' tw run new x --explain "${count[@]}" --tensors "$files/moe" --out any2.manifest
expect 0 'model.layers.\{1-2,4-5\}.mlp.experts.\{0-3\}.up_proj.weight  2 x 4' tw run show any2.manifest
expect 0 '16 of the 46' tw run new x --explain "${count[@]}" --tensors "$files/moe" --train '*experts*' \
    --frozen '*down*' --out any3.manifest
expect 0 '118 of the 119 of' tw run new x --explain "${count[@]}" --tensors "$files" --out any6.manifest
base=$(sha256sum "$files"/moe/*.safetensors | cut -d' ' -f1 | sha256sum | cut -d' ' -f1)
expect 0 "over weights with SHA-256 $base" tw run new x --explain "${count[@]}" --preset diloco --nodes 2 \
    --tensors "$files/adapter_model.safetensors" --base "$files/moe" --out any4.manifest
expect 0 "model.base = $(sha256sum "$files/gpt2.safetensors" | cut -d' ' -f1)" cat <(tw run new x --explain \
    "${count[@]}" --tensors "$files/adapter_model.safetensors" --base "$files/gpt2.safetensors" \
    --out any5.manifest >/dev/null; cat any5.manifest)
expect 2 'say how your trainer counts' tw run new x --explain --tensors "$files/moe" --batch 8 --out x.manifest
expect 2 'need --tensors FILE' tw run new x --explain --train '*' --out x.manifest
expect 2 'use one of them' tw run new x --explain --tensors "$files/moe" --model 1m --out x.manifest
expect 2 'give it, such as --step-time 250ms' tw run new x --explain "${count[@]}" --tensors "$files/moe" \
    --budget 2mbit --out x.manifest
expect 3 "--train '.nix': .*moe has no tensor of such a name" tw run new x "${count[@]}" \
    --tensors "$files/moe" --train '*nix' --out x.manifest
expect 3 "--frozen '.nix'" tw run new x "${count[@]}" --tensors "$files/moe" --frozen '*nix' --out x.manifest
expect 3 'has no tensor to train with these patterns' tw run new x "${count[@]}" \
    --tensors "$files/moe" --frozen '*' --out x.manifest
expect 3 'model.width has no effect where model.family = tensors' tw run new x "${count[@]}" \
    --tensors "$files/moe" --set model.width=64 --out x.manifest
expect 4 'no safetensors file' tw run new x "${count[@]}" --tensors . --out x.manifest
expect 4 'nothing: No such file' tw run new x "${count[@]}" --tensors nothing --out x.manifest
expect 4 'cut short, or no safetensors' tw run new x "${count[@]}" --tensors "$SOURCE/README.md" --out x.manifest
mkdir broken && echo '{"weight_map": {"w": "../w.safetensors"}}' >broken/model.safetensors.index.json
expect 4 'names no file of the folder for w' tw run new x "${count[@]}" --tensors broken --out x.manifest
expect 4 'nothing.txt: No such file' tw run new x --data nothing.txt
[[ ! -e x.manifest ]] || { echo "FAIL: a refused manifest was written"; failures=$((failures + 1)); }
expect 0 'run bible, id [0-9a-f]{64}' tw run show state/run.manifest
expect 0 '"planned_outer_steps": [0-9]+' tw run show state/run.manifest --json
expect 3 'text.txt' tw run show text.txt
expect 0 'The daemon can start with this' tw --config node.conf config check
expect 0 'Device and peers were not tried' tw --config node.conf config check
# every address is tried: one that is none, one of another machine, one in use
other_address() {
    sed "s/^listen = .*/listen = $1/" node.conf >other.conf
    tw --config other.conf config check
}
expect 2 'listen = \[fe80::1%nosuch\]:4747: .*; write an IP address of this machine' \
    other_address '[fe80::1%nosuch]:4747'
expect 6 '203.0.113.9:4747 is not an address of this machine' other_address 203.0.113.9:4747
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(60)' >held &
holder=$!
until [[ -s held ]]; do sleep 0.05; done
expect 6 'is in use: another process listens there' other_address "127.0.0.1:$(cat held)"
kill $holder
other_key() {
    { cat node.conf; printf '%s\n' "$@"; } >other.conf
    tw --config other.conf config check
}
touch a-file
other_folder() {
    sed 's|^run_dir = .*|run_dir = a-file/x|' node.conf >other.conf
    tw --config other.conf config check
}
any_model() {
    sed "s|^\[node]|[node]\nrun = ./any0.manifest|; /^data = /d" node.conf >other.conf
    tw --config other.conf config check
}
expect 0 'by your own trainer' tw run new x --explain "${count[@]}" --tensors "$files/gpt2.safetensors" \
    --set security.admission=secret --out any0.manifest
expect 0 "training data: the trainer's own" any_model
expect 5 'run folder .*a-file/x cannot be used or made: Not a directory' other_folder
expect 2 'the worker /no/worker: No such file or directory' other_key '[node]' 'worker_path = /no/worker'
expect 2 'there is no group `nobodys`' other_key '[api]' 'group = nobodys'
rm other.conf a-file
expect 0 '"ok": true' tw --config node.conf config check --json
echo tampered >>text.txt
expect 4 '"exit_status": 4' tw --config node.conf config check --json
expect 4 'not the text the manifest names' tw --config node.conf config check
head -c 40000 text.txt >good.txt && mv good.txt text.txt
chmod 644 state/run.secret
expect 7 'run.secret' tw --config node.conf config check
chmod 600 state/run.secret

# -- a plan, before there is a run
plan=(plan --set model.layers=2 --set model.width=32 --set train.tokens=40m --step-time 250ms)
expect 0 '^    thinwire run new NAME .*--preset [a-z]+ --set sync.period=[0-9]+' tw "${plan[@]}" --upload 5mbit
expect 0 '^  a node alone  ' tw "${plan[@]}"
expect 0 '\* is recommended: .* sends the fewest' tw "${plan[@]}"
expect 0 'a day          round' tw "${plan[@]}" # without a line, no column of it
expect 0 '"recommended": [0-9]+,' tw "${plan[@]}" --json
expect 0 '^! exceeds the budget' tw "${plan[@]}" --budget 70kbit
expect 0 '^! rounds take longer than the preset leaves them' tw "${plan[@]}" --upload 64kbit
expect 2 '--upload 5: .* lacks its unit' tw "${plan[@]}" --upload 5
expect 2 '--rtt 50: ' tw "${plan[@]}" --rtt 50
expect 2 'both give the speed' tw "${plan[@]}" --tokens-per-s 10
expect 2 '--tokens-per-s -1: a number above 0' tw plan --tokens-per-s -1
expect 2 'plan: one node sends nothing' tw "${plan[@]}" --nodes 1
expect 3 'gone: No such file' tw plan gone
expect 2 'did you mean --upload' tw plan --uplaod 5mbit
tw run new planned --set train.tokens=40m >/dev/null
expect 0 '^\* sync.preset = [a-z]+, sync.period = [0-9]+, sync.codec = ' tw plan planned.manifest --step-time 250ms
expect 2 'leave it out to plan a new run' tw plan planned.manifest --nodes 8
COLUMNS=80 tw "${plan[@]}" --upload 5mbit >plan.txt
awk 'length > 80 && !/^    thinwire/ { print "wide: " $0; exit 1 }' plan.txt || failures=$((failures + 1))

expect 0 'Memory +[0-9.]+ MB for anchor, momentum and payloads' tw plan planned.manifest --step-time 250ms
tw run new planned --set train.tokens=40m --set sync.outer_momentum=0 --out bare.manifest >/dev/null
expect 0 'Memory +[0-9.]+ MB for anchor and payloads' tw plan bare.manifest --step-time 250ms

# -- models by name
expect 0 '^gpt2-124m +gpt2 +124M' tw run models
expect 0 '"name": "llama-8b"' tw run models --json
expect 0 '^llama-8b +71.3 GB +53.9 GB +103 GB +128 GB +64.2 GB +544 MB +16.7 GB' tw run models --trainers
expect 0 '^llama-70b .* 1.13 TB +564 GB +2.51 GB +144 GB' tw run models --trainers
expect 1 '' grep -q LoRA <("$BIN/thinwire" run models)
expect 0 '^thinwire run new NAME' tw help run new
expect 2 'too much' tw help run new more
expect 0 '^1m +gpt2' tw run new x --model help
expect 2 'there is no model `gpt2-125m`: did you mean gpt2-124m' tw run new x --model gpt2-125m
expect 0 '124,439,808 parameters' tw run new x --model gpt2-124m --out big.manifest
expect 0 '"warmup|train.warmup_tokens = 409600' tw run new x --model 1m --set train.tokens=10m \
    --out one.manifest --json
expect 2 'run: did you mean `run models`' tw run model
expect 2 'run: did you mean `run keys`' tw run key

# -- train, eval, generate: a model of a few thousand parameters
expect 0 '"event": "done", "steps": 3' tw train --run state/run.manifest --data text.txt --steps 3 \
    --threads 1 --out w.safetensors --json
expect 2 'w.safetensors exists and is not overwritten' tw train --run state/run.manifest \
    --data text.txt --steps 1 --threads 1 --out w.safetensors
expect 0 'nats/token, perplexity .* bits per byte' tw eval w.safetensors --run state/run.manifest \
    --data text.txt --threads 1
expect 0 '"tokens": 5' tw generate w.safetensors --run state/run.manifest --tokens 5 --threads 1 --json
expect 0 'passes of 2 sequences' tw train --run state/run.manifest --data text.txt --plan
expect 0 '"event": "plan".*"limit": 8000000000' tw train --run state/run.manifest --data text.txt \
    --plan --json --memory 8GB
expect 1 'needs .* kB of memory .* and there are 100 kB:' tw train --run state/run.manifest \
    --data text.txt --memory 100kB
expect 2 '--memory 8: a size such as 8GB' tw train --run x --data y --memory 8
expect 2 '--compute fp16: it is auto, fp32 or bf16' tw eval x --data y --compute fp16
expect 2 '`--top-k` is unknown' tw train --run x --data y --top-k 3
expect 2 'w.safetensors was trained with 1: leave it out' tw train --from w.safetensors \
    --data text.txt --seed 5
expect 2 'is at step 3 already: --steps counts all steps' tw train --from w.safetensors --data text.txt --steps 3
expect 2 'usage: thinwire eval FILE' tw eval --run state/run.manifest --data text.txt
expect 2 '--temprature. is unknown; did you mean --temperature' tw generate w --temprature 1
expect 2 '--model is given twice' tw run new a --model 1m --model 1m
expect 2 '--model is given twice' tw run new a --model=1m --model=1m
expect 2 '--model wants a value, or is given twice' tw run new a --model
expect 2 '--part both: it is live or anchor' tw generate w --part both
expect 3 'none.manifest: No such file or directory' tw eval w.safetensors --run none.manifest --data text.txt
expect 4 'none.txt' tw eval w.safetensors --run state/run.manifest --data none.txt
expect 2 'text.txt is no safetensors file: name the folder' tw generate text.txt --run state/run.manifest
head -c 2000 w.safetensors >cut.safetensors
expect 9 'cut.safetensors: ' tw generate cut.safetensors --run state/run.manifest
expect 2 '--repeat-penalty 0: a number from 0.01' tw generate w.safetensors --repeat-penalty 0

# -- a training continues with the same steps, whatever memory is free then
go_on() { tw train --from half.safetensors --data text.txt --steps 4 --eval-steps 0 "$@"; }
begin() {
    tw train --run state/run.manifest --data text.txt --eval-steps 0 --compute fp32 --json "$@" \
        >/dev/null 2>&1
}
begin --steps 4 --micro-batch 1 --out whole.safetensors
begin --steps 2 --micro-batch 1 --out half.safetensors
expect 0 'passes of 1 sequence$' go_on --out rest.safetensors
expect 0 '^$' cmp whole.safetensors rest.safetensors
expect 0 'passes of 2 sequences in fp32, and of 1 in fp32 before: the curve may differ' go_on \
    --micro-batch 2 --out other.safetensors
rm half.safetensors
begin --steps 2 --out half.safetensors
expect 0 'passes of 1 sequence in fp32, and of 2 in fp32 before: the curve may differ' go_on \
    --memory 450kB --out small.safetensors
expect 1 'needs .* of memory' go_on --memory 100kB --out none.safetensors

# -- an output that cannot be written is refused before the first step
expect 2 '--out wants a value' tw train --run state/run.manifest --data text.txt --out ''
expect 1 'cannot write nowhere/.part: No such file' tw train --run state/run.manifest \
    --data text.txt --out nowhere/
ln -s text.txt link.part
expect 2 'link.part is in the way; remove it' tw train --run state/run.manifest --data text.txt --out link

# -- models of other programs: a failure leaves no file behind
tw export w.safetensors --out other >/dev/null
expect 2 'text.txt is not a tokenizer.json' tw export w.safetensors --out told --tokenizer text.txt
expect 2 'one file, m: weights and manifest are two' tw import other --out m --run m
expect 1 'nowhere/m.part: No such file' tw import other --out m --run nowhere/m
expect 0 'manifest  m.manifest' tw import other --out m --run m.manifest
python3 - <<'PY'
import json, struct
with open("other/tokenizer.json") as f:
    t = json.load(f)
t["model"]["vocab"] = {"a": 0}
json.dump(t, open("a.json", "w"))
with open("other/model.safetensors", "rb") as f:
    b = f.read()
n = struct.unpack("<Q", b[:8])[0] + 8
values = [v * 1e15 for (v,) in struct.iter_unpack("<f", b[n:])]
open("other/model.safetensors", "wb").write(b[:n] + struct.pack("<%df" % len(values), *values))
PY
expect 2 'the tokenizer has no token for any of its characters' tw generate w.safetensors \
    --tokenizer a.json --prompt zzz
expect 9 'the loss of this model is not finite' tw eval other --data text.txt --json

# -- tokenizers in other files, and of kinds that are not read
tw export w.safetensors --out unread >/dev/null
mv unread/tokenizer.json kept.json
printf '\n\016\n\005<unk>\025\0\0\0\0\030\002' >unread/tokenizer.model # as sentencepiece begins one
expect 0 'unread has no tokenizer.json but tokenizer.model, which is not read' tw generate unread --prompt 7 --tokens 1
expect 2 'tokenizer.model: it is a model of sentencepiece, which is not read: make token numbers' \
    tw generate unread --tokenizer unread/tokenizer.model
rm unread/tokenizer.model
printf '{"a": 0, "b": 1}' >unread/vocab.json
expect 0 "T.from_pretrained\('unread'\).save_pretrained" tw export unread --out numbers
sed 's/"type": "BPE"/"type": "Unigram"/' kept.json >unread/tokenizer.json
expect 0 'Unigram. is not supported.*; prompt and text are token numbers' tw generate unread --prompt 7 --tokens 1

# -- a running daemon
mkfifo hold ready
serve() {
    local word
    "$BIN/api_server" "$home/api.sock" <hold >ready &
    server=$!
    exec 7>hold
    read -r word <ready
    [[ $word == ready ]]
}
serve
expect 0 'attic trains bible together with 3 others' tw status --socket "$home/api.sock"
expect 0 '4 known, 3 alive, 3 merged' tw peers --socket "$home/api.sock"
expect 0 'contributors' tw rounds --socket "$home/api.sock"
expect 0 'worker_died' tw events --socket "$home/api.sock"
expect 0 'paused' tw pause --socket "$home/api.sock"
expect 0 'saved step' tw reload --socket "$home/api.sock"
expect 0 'upload=- download=-' tw limit --socket "$home/api.sock"
expect 0 'upload=5mbit download=5mbit' tw limit 5mbit --socket "$home/api.sock"
expect 0 'upload=2.5mbit download=-' tw limit upload 2.5mbit --socket "$home/api.sock"
expect 0 'upload=- download=off' tw limit download off --socket "$home/api.sock"
expect 2 'limit: `fast` is no number with a unit; write a rate in bits .* or off' tw limit fast
expect 2 'limit upload: which rate?' tw limit upload
expect 2 'limit: `sideways` is neither upload nor download' tw limit sideways 5mbit
expect 2 'limit: ' tw limit upload 5mbit extra
expect 0 'banned   77777777  broke the protocol; for 42 min more' tw peers --socket "$home/api.sock"
expect 0 '"left_s": 2520' tw peers --json --socket "$home/api.sock"
expect 0 'node=7777' tw unban 7777 --socket "$home/api.sock"
expect 0 '^http://127.0.0.1:[0-9]+/#[0-9a-f]{64}$' tw web --socket "$home/api.sock"
expect 2 'unban: which node?' tw unban
expect 2 'attic is no node id of 64 hex digits' tw unban attic
expect 2 'unban: `8888` is too much' tw unban 7777 8888
expect 0 'saved step 12000' tw checkpoint --socket "$home/api.sock"
if command -v curl >/dev/null; then # --json is what the API says, unchanged
    tw status --json --socket "$home/api.sock" >ours.json
    curl -s --unix-socket "$home/api.sock" http://localhost/v1/status >theirs.json
    echo >>theirs.json
    cmp ours.json theirs.json || failures=$((failures + 1))
fi
if tw status --socket "$home/api.sock" --color=never | grep -q $'\033'; then
    echo "FAIL: colour without being asked"
    failures=$((failures + 1))
fi
if [[ $(COLUMNS= tw status --socket "$home/api.sock" | wc -L) -gt 80 ]]; then
    echo "FAIL: status is wider than 80 columns"
    failures=$((failures + 1))
fi
LC_ALL=C tw status --socket "$home/api.sock" >ascii.txt
if LC_ALL=C grep -q '[^ -~]' ascii.txt; then
    echo "FAIL: bytes beyond ASCII in the C locale"
    failures=$((failures + 1))
fi

# -- a daemon that cannot save still ends, and `leave` waits for it; so does `start`
sed "s|^#socket = .*|socket = $home/api.sock|" place/node.conf >place/met.conf
ended() { # ended STATUS PATTERN COMMAND...
    expect "$@"
    [[ ! -e api.sock ]] || { echo "FAIL: ${*:3} did not wait"; failures=$((failures + 1)); }
}
expect 0 'It runs already' tw --config ./place/met.conf start
ended 1 'leave: the disk is full' tw leave --socket "$home/api.sock"
serve
ended 1 '"ok": false' tw leave --socket "$home/api.sock" --json
serve
tw leave --socket "$home/api.sock" >/dev/null 2>&1 &
until [[ ! -e api.sock ]] || tw status --socket "$home/api.sock" --json | grep -q '"leaving": true'; do
    sleep 0.02
done
ended 3 'no run manifest' tw --config ./place/met.conf start

[[ $failures -eq 0 ]] || { echo "$failures failed"; exit 1; }
echo "all sentences and statuses are as promised"

#!/usr/bin/env bash
# Output for programs: with --json every verb that needs no daemon prints one JSON value or refuses
# the flag, before or after the verb. Lost output is a failure. BIN: folder of the programs.
set -euo pipefail
BIN=$1
export LC_ALL=C.UTF-8
home=$(mktemp -d /tmp/tw_output_XXXXXX)
trap 'rm -rf "$home"' EXIT
cd "$home"
tw() { "$BIN/thinwire" "$@"; }
fail() {
    echo "FAIL: $*"
    exit 1
}

seq 1 3000 >text.txt
tw run new small --data text.txt --out run --set model.layers=1 --set model.width=16 \
    --set model.heads=2 --set model.context=32 --set train.batch=4 --set train.tokens=4k \
    --set train.warmup_tokens=128 --set security.admission=secret >/dev/null
tw init --dir node --name a --run run --data text.txt --listen 127.0.0.1:0 >/dev/null
tw train --run run --data text.txt --steps 2 --out m --eval-steps 0 2>/dev/null
tw data prepare text.txt --out set --text lines >/dev/null 2>&1
tw owner new key >/dev/null
tw export m --out folder >/dev/null
mkdir said

# -- one JSON value on standard output, nothing else, wherever the flag stands
while read -r line; do
    read -r -a words <<<"$line"
    rm -rf new new.*
    tw "${words[@]}" --json >"said/${line//\//.} --json" 2>err || fail "$line --json: $(cat err)"
    rm -rf new new.*
    tw --json "${words[@]}" >"said/--json ${line//\//.}" 2>err || fail "--json $line: $(cat err)"
    # -- lost output is a failure
    rm -rf new new.*
    rc=0
    tw "${words[@]}" >/dev/full 2>lost || rc=$?
    [[ $rc == 1 ]] || fail "$line >/dev/full: $rc"
    grep -q 'standard output: No space left' lost || fail "$line >/dev/full: $(cat lost)"
done <<'EOF'
version
run new other --out new
run show run
run presets
run codecs
run new --model list
init --dir new --name b --run run --data text.txt
config check node/node.conf
config show node/node.conf
secret show --config node/node.conf
owner new new
owner show key
info
data info set --verify
data info text.txt
data prepare text.txt --out new --text lines
data weigh set text=1
eval m --data text.txt --windows 2
generate m --tokens 3
merge m m --out new
export m --out new
export m --out new --format gguf
import folder --out new
EOF
python3 - <<'PY' || fail "no JSON"
import json, os
for name in os.listdir("said"):
    text = open("said/" + name).read()
    try: json.loads(text)
    except ValueError as why: raise SystemExit(f"{name}: {why}: {text[:200]!r}")
PY

# -- verbs without JSON say so, and lost plain text is a failure
for line in 'config example' help 'owner import key'; do
    read -r -a words <<<"$line"
    rc=0
    tw "${words[@]}" --json >out 2>&1 || rc=$?
    [[ $rc == 2 ]] || fail "$line --json: $rc"
    grep -q 'there is no --json' out || fail "$line --json: $(cat out)"
done
for line in 'config example' help 'train --help'; do
    read -r -a words <<<"$line"
    ! tw "${words[@]}" >/dev/full 2>lost || fail "$line >/dev/full"
    grep -q 'standard output' lost || fail "$line >/dev/full: $(cat lost)"
done
echo "every verb prints JSON where it is asked to, and says when nobody got it"

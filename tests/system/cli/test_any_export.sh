#!/usr/bin/env bash
# A run of any model from its files to its files: a manifest from the header of a safetensors file,
# a node with a trainer of its own, and an export with the names and shapes of that file. BIN: folder
# of the built programs; STUB: a worker without a model; FILES: tests/data/safetensors.
set -euo pipefail
BIN=$1 STUB=$2 FILES=$3
export LC_ALL=C.UTF-8
home=$(mktemp -d /tmp/tw_any_XXXXXX)
finish() {
    [[ ! -e node.conf ]] || "$BIN/thinwire" --config ./node.conf leave >/dev/null 2>&1 || true
    rm -rf "$home"
}
trap finish EXIT
cd "$home"
tw() { "$BIN/thinwire" "$@"; }
# expect STATUS PATTERN command...: its output and its exit status must match
expect() {
    local want=$1 pattern=$2 rc=0
    shift 2
    "$@" >out.txt 2>&1 </dev/null || rc=$?
    if [[ $rc != "$want" ]] || ! grep -qE -- "$pattern" out.txt; then
        echo "FAIL: $* -> $rc, wanted $want and /$pattern/:"
        cat out.txt
        exit 1
    fi
}

tw run new any --tensors "$FILES/gpt2.safetensors" --batch 4 --context 32 --tokens 1g --out any.manifest >/dev/null
cat >trainer <<SH
#!/bin/sh
exec "$STUB" --step-us 1000 --start-seed 5 "\$@"
SH
chmod +x trainer
tw --config ./node.conf init --state-dir "$home/state" --run-dir "$home/run" --run "$home/any.manifest" \
    --name any --listen 127.0.0.1:0 >init.txt
! grep -q 'training text' init.txt || { echo "FAIL: init asks for data"; exit 1; }

# -- thinwire-worker refuses it, and the daemon does not start it again
sed "s|^\[node\]|[node]\nworker_path = $BIN/thinwire-worker|" node.conf >native.conf
expect 3 'start your trainer, which attaches to the daemon.s worker socket, or name it' \
    "$BIN/thinwired" --config ./native.conf
[[ $(grep -c worker_attached out.txt) == 1 ]] || { echo "FAIL: started again"; cat out.txt; exit 1; }

# -- a trainer of its own trains
sed -i "s|^\[node\]|[node]\nworker_path = $home/trainer|" node.conf
tw --config ./node.conf start >/dev/null
steps_made() {
    tw --config ./node.conf status --json | grep -oE '"steps": *[0-9]+' | head -1 | grep -oE '[0-9]+'
}
for _ in $(seq 200); do
    [[ $(steps_made) -gt 3 ]] && break
    sleep 0.05
done
expect 0 'Data +data of its own' tw --config ./node.conf status
expect 0 '' tw --config ./node.conf checkpoint
tw --config ./node.conf leave >/dev/null

# -- its weights come out under their names
expect 0 'w.safetensors: 1.74k parameters as f32, .* in 1 file' tw export state --out w.safetensors
expect 0 '"format": "safetensors", "dtype": "bf16"' tw export state --part anchor --dtype bf16 --out a.st --json
expect 2 '--format says nothing of a run of any model' tw export state --format gguf --out g.gguf
python3 - "$FILES/gpt2.safetensors" w.safetensors <<'PY'
import json, struct, sys
def shapes(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    return {name: row["shape"] for name, row in head.items() if row["dtype"] != "I64"}
was, now = shapes(sys.argv[1]), shapes(sys.argv[2])
was["logit_scale"] = [1]
assert was == now, (was, now)
PY
# -- models of several nodes are averaged; none can be measured
expect 0 'Written to mean.safetensors, with its manifest' tw merge state state --out mean.safetensors
expect 0 '1.74k parameters as f32' tw export mean.safetensors --out mean.st
cmp <(tail -c 6948 w.safetensors) <(tail -c 6948 mean.st)
expect 3 'take its weights with .thinwire export' tw merge state state --data any.manifest
expect 3 'take its weights with .thinwire export' tw generate state
expect 3 'take its weights with .thinwire export' tw eval state --data any.manifest
expect 3 'take its weights with .thinwire export' tw train --run any.manifest --data any.manifest
echo ok

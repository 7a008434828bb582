#!/usr/bin/env bash
# The status of a node shows the GPU of its worker, as the driver reports it: a real daemon with the
# library of a fake driver. BIN: folder of the built programs; NVML: the library.
set -euo pipefail
BIN=$1
NVML=$2
export LC_ALL=C.UTF-8 PATH=$BIN:$PATH
home=$(mktemp -d /tmp/tw_gpu_XXXXXX)
daemon=
finish() {
    [[ -z $daemon ]] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT
cd "$home"
fail() {
    echo "FAIL: $*"
    tail -n 8 log || true
    exit 1
}
# until_said WORDS COMMAND...: waits until it prints the words.
until_said() {
    local end=$((SECONDS + 60)) words=$1
    shift
    until "$@" 2>/dev/null >said && grep -q -- "$words" said; do
        [[ $SECONDS -lt $end ]] || fail "no word of '$words': $(cat said)"
        sleep 0.2
    done
}

yes 'And it came to pass in those days that there went out a decree.' | head -c 40000 >text.txt || true
thinwire run new small --data text.txt --out small.manifest --set model.layers=1 --set model.width=16 \
    --set model.heads=2 --set model.context=16 --set train.batch=2 --set train.warmup_tokens=100 >/dev/null
thinwire init --dir "$home" --name one --run small.manifest --data text.txt --listen 127.0.0.1:0 >/dev/null
printf '#!/bin/sh\nexec %s/stub_worker --gpu 0000:17:00.0 "$@"\n' "$BIN" >worker
chmod +x worker
sed -i "s|^\[node\]|[node]\nworker_path = $home/worker|" node.conf
export TW_NVML=$NVML THINWIRE_CONFIG=$home/node.conf
thinwired --config node.conf 2>log &
daemon=$!

until_said '"temperature_c": 61' thinwire status --json
grep -q '"memory_used_bytes": 10737418240' said || fail "no memory: $(grep -A8 gpu said)"
until_said 'GPU 97 % busy · 61 °C · 412 W · 10.7 GB of 85.9 GB' thinwire status
echo "status shows the GPU"

# Without the driver there is a line in the log, and the node trains all the same.
kill "$daemon" && wait "$daemon" || true
TW_NVML=libthinwire-nothing.so.1 thinwired --config node.conf 2>log &
daemon=$!
until_said '"state": "running"' thinwire status --json
grep -q '"gpu": null' said || fail "a GPU nobody saw: $(grep -A3 gpu said)"
grep -q 'ev=gpu_unseen text="libthinwire-nothing.so.1 could not be loaded' log || fail "no word in the log"
echo "a GPU that cannot be seen is no reason not to train"

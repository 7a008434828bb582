#!/usr/bin/env bash
# A model without a daemon: training, an interruption, resuming, evaluation, generated text.
# BIN: folder of the built programs.
set -euo pipefail
BIN=$1
export LC_ALL=C.UTF-8
home=$(mktemp -d /tmp/tw_alone_XXXXXX)
child=
finish() {
    [[ -z $child ]] || kill -9 "$child" 2>/dev/null || true
    rm -rf "$home"
}
trap finish EXIT
cd "$home"
tw() { "$BIN/thinwire" "$@"; }
fail() {
    echo "FAIL: $*"
    exit 1
}

# Sentences of a few words, which a model of some thousand parameters learns in seconds.
awk 'BEGIN {
    srand(7)
    split("the a one every|king prophet shepherd city|saw made blessed gave|bread water light peace", w, "|")
    for (k = 1; k <= 4; k++) counts[k] = split(w[k], words, " ")
    for (i = 0; i < 6000; i++) {
        line = ""
        for (k = 1; k <= 4; k++) { split(w[k], words, " "); line = line words[int(rand() * counts[k]) + 1] " " }
        print line "é."
    }
}' >text.txt
tw run new alone --data text.txt --out alone.manifest --set model.layers=2 --set model.width=32 \
    --set model.heads=2 --set model.context=32 --set train.batch=8 --set train.tokens=76800 \
    --set train.warmup_tokens=1k --set train.lr=0.01 >/dev/null

# -- uninterrupted: 300 steps
tw train --run alone.manifest --data text.txt --out whole.safetensors --threads 2 --json \
    --eval-steps 100 >whole.json 2>/dev/null
grep -q '"event": "done", "steps": 300' whole.json || fail "300 steps: $(tail -1 whole.json)"

# -- stopped at step 50, stopped by a signal, resumed to the end: equal files to the byte, equal curve
tw train --run alone.manifest --data text.txt --out parts.safetensors --threads 2 --json \
    --eval-steps 100 --steps 50 >first.json 2>/dev/null
mkfifo events
"$BIN/thinwire-engine" train --from parts.safetensors --data text.txt --threads 1 --json \
    --eval-steps 100 >events 2>/dev/null &
child=$!
while read -r line; do
    echo "$line" >>second.json
    if [[ $line == *'"event": "step", "steps": 70,'* ]]; then kill -INT $child; fi
done <events
wait $child || fail "a signal ended training with $?"
child=
grep -q '"event": "interrupted"' second.json || fail "the interruption is not reported"
[[ $(grep -c '"event": "step"' second.json) -lt 200 ]] || fail "the signal stopped nothing"
tw train --from parts.safetensors --data text.txt --threads 2 --json --eval-steps 100 \
    >third.json 2>/dev/null
cmp whole.safetensors parts.safetensors || fail "a resumed training differs from an uninterrupted one"
curve() { cat "$@" | grep '"event": "step"' | sed 's/, "tokens_per_s.*//'; }
diff <(curve whole.json) <(curve first.json second.json third.json) || fail "another curve"

# -- a save that fails does not end the training: it is reported and tried again. A narrow pipe keeps
# the training near its reader.
python3 - "$BIN/thinwire" 2>busy.err <<'PY' || fail "a save that fails: $(cat busy.err)"
import fcntl, json, os, subprocess, sys
out = "busy.safetensors"
child = subprocess.Popen([sys.argv[1], "train", "--run", "alone.manifest", "--data", "text.txt",
                          "--out", out, "--save-every", "10", "--eval-steps", "100", "--json"],
                         stdout=subprocess.PIPE, text=True)
fcntl.fcntl(child.stdout, 1031, 4096) # F_SETPIPE_SZ
unsaved = []
for line in child.stdout:
    event = json.loads(line)
    if event["event"] == "saved" and event["steps"] == 10:
        open("stranger", "w").close()
        os.rename("stranger", out)
    if event["event"] == "unsaved":
        if not unsaved: os.unlink(out)
        unsaved.append(event)
assert child.wait() == 0, child.returncode
assert unsaved and unsaved[0]["path"] == out and "another file" in unsaved[0]["reason"], unsaved
PY
grep -q 'not saved at step .*move it away' busy.err || fail "not reported: $(cat busy.err)"
cmp whole.safetensors busy.safetensors || fail "a save that failed changed the training"

# -- another manifest starts anew from the parameters, and says so
sed 's/^train.lr = .*/train.lr = 0.001/' alone.manifest >gentle.manifest
tw train --run gentle.manifest --from whole.safetensors --data text.txt --steps 2 --json \
    --out tuned.safetensors 2>tuned.err | grep -q '"event": "done", "steps": 2' || fail "fine-tuning"
grep -q 'starts anew from the parameters of whole.safetensors: train.lr is 0.001 here and 0.01 there' \
    tuned.err || fail "a new start is not reported: $(cat tuned.err)"
! tw train --run gentle.manifest --from whole.safetensors --data text.txt --out whole.safetensors \
    2>tuned.err || fail "a training was overwritten"
grep -q 'whole.safetensors was trained with another train.lr' tuned.err || fail "$(cat tuned.err)"

# -- it learnt: below 1.7 nats per byte; a uniform guess has 5.5
tw eval whole.safetensors --data text.txt --json >eval.json
python3 - <<'PY' || fail "eval: $(cat eval.json)"
import json, math
e = json.load(open("eval.json"))
assert e["validation_nats"] < 1.7, e
assert 0 < e["standard_error_nats"] < 0.1, e
assert abs(e["bits_per_byte"] - e["validation_nats"] / math.log(2)) < 1e-4
assert abs(e["perplexity"] / math.exp(e["validation_nats"]) - 1) < 1e-3
done = json.loads(open("third.json").read().splitlines()[-1])
assert done["steps_skipped"] == 0 and 0 < done["mfu_ratio"] < 1.5, done
PY

# -- text: the same seed gives the same text; only whole characters; the requested number of samples
tw generate whole.safetensors --prompt 'the king ' --tokens 120 --seed 3 >a.txt 2>speed.txt
tw generate whole.safetensors --prompt 'the king ' --tokens 120 --seed 3 --threads 2 2>/dev/null |
    cmp - a.txt || fail "the same seed, another text"
iconv -f UTF-8 -t UTF-8 a.txt >/dev/null || fail "text is no UTF-8"
grep -q '^the king ' a.txt || fail "the prompt is not where it should be"
grep -qE 'tokens, .* tokens/s on cpu' speed.txt || fail "no speed: $(cat speed.txt)"
tw generate whole.safetensors --tokens 30 >both.txt 2>&1
tail -n 1 both.txt | grep -qE '^30 tokens, .* tokens/s on cpu' || fail "the speed is no line: $(tail -n 2 both.txt)"
[[ $(tw generate whole.safetensors -n 3 --tokens 20 --json | grep -c '"sample"') == 3 ]] ||
    fail "three samples"
tw generate whole.safetensors --prompt 'the king ' --tokens 60 --temperature 0 2>/dev/null >greedy.txt
grep -qE '(saw|made|blessed|gave) (bread|water|light|peace) é\.' greedy.txt ||
    fail "it does not name the prompt it read: $(cat greedy.txt)"

python3 - "$BIN/thinwire" <<'PY' || fail "a text that was interrupted"
import signal, subprocess, sys
child = subprocess.Popen([sys.argv[1], "generate", "whole.safetensors", "--tokens", "10000000"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
child.stdout.read(100)
child.send_signal(signal.SIGINT)
said = child.communicate()[1]
assert child.returncode == 130 and said.startswith("interrupted after "), (child.returncode, said)
PY

# -- fp32 and the portable kernels train, too
TW_MATMUL=reference tw train --run alone.manifest --data text.txt --out plain.safetensors --steps 20 \
    --compute fp32 --json 2>/dev/null | tail -1 >plain.json
python3 -c 'import json; e = json.load(open("plain.json")); assert e["validation_nats"] < 3.5, e' ||
    fail "plain arithmetic: $(cat plain.json)"

# -- time by operator: the rows add up to the step, and the products have a rate
tw train --run alone.manifest --data text.txt --out timed.safetensors --steps 5 --profile --json 2>/dev/null |
    grep '"event": "profile"' >timed.json || fail "no event profile"
python3 - <<'PY' || fail "times by operator: $(cat timed.json)"
import json
e = json.load(open("timed.json"))
rows = {row["operator"]: row for row in e["operators"]}
assert e["steps_measured"] == 4 and {"qkv", "head_dw", "attention", "waiting"} <= set(rows), e
assert abs(sum(row["seconds"] for row in rows.values()) / e["step_s"] - 1) < 0.01, e
assert rows["up"]["flops_per_s"] > 0 and "flops_per_s" not in rows["norm"], e
PY
tw train --run alone.manifest --data text.txt --out shown.safetensors --steps 2 --profile 2>shown.err
grep -q '^time by operator: mean of 1 step of ' shown.err || fail "no table: $(cat shown.err)"

# -- a disk too small for the saved model is reported before the first step
cat >disk.sh <<'END'
set -euo pipefail
mkdir small
mount -t tmpfs -o size=100k none small
if thinwire train --run alone.manifest --data text.txt --out small/x.safetensors --json >said 2>&1; then
    exit 1
fi
grep -q 'x.safetensors will take .* and its disk has .* left: free some' said
if grep -q '"event": "step"' said; then exit 1; fi
[[ -z $(ls small) ]]
END
if unshare -rm true 2>/dev/null; then
    rm -f said
    PATH=$BIN:$PATH unshare -rm bash disk.sh || fail "a small disk: $(cat said)"
else
    echo "no user namespaces here: a small disk was not tried"
fi
echo "trained alone, stopped, went on, measured, generated: $(tr '\n' '|' <greedy.txt | head -c 100)"

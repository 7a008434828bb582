#!/usr/bin/env bash
# One model of several: two siblings, and one that hardly trained. The mean is
# computed again from the files. BIN: folder of the built programs.
set -euo pipefail
BIN=$1
export LC_ALL=C.UTF-8
home=$(mktemp -d /tmp/tw_merge_XXXXXX)
trap 'rm -rf "$home"' EXIT
cd "$home"
tw() { "$BIN/thinwire" "$@"; }
fail() {
    echo "FAIL: $*"
    exit 1
}

awk 'BEGIN {
    srand(7)
    split("the a one every|king prophet shepherd city|saw made blessed gave|bread water light peace", w, "|")
    for (k = 1; k <= 4; k++) counts[k] = split(w[k], words, " ")
    for (i = 0; i < 6000; i++) {
        line = ""
        for (k = 1; k <= 4; k++) { split(w[k], words, " "); line = line words[int(rand() * counts[k]) + 1] " " }
        print line "."
    }
}' >text.txt
tw run new apart --preset btm --data text.txt --out run --set model.layers=1 --set model.width=32 \
    --set model.heads=2 --set model.context=32 --set train.batch=8 --set train.tokens=76800 \
    --set train.warmup_tokens=1k --set train.lr=0.005 >/dev/null
for seed in 1 2; do
    tw train --run run --data text.txt --seed $seed --out "good$seed" --threads 1 >/dev/null 2>&1
done
tw train --run run --data text.txt --seed 3 --out poor --threads 1 --steps 3 >/dev/null 2>&1

# -- the mean, and a weighted one, element by element
tw merge good1 good2 --out mean >/dev/null
tw merge good1 good2 poor --out weighted --weights 1,3,0 --run run >/dev/null
python3 - <<'PY' || fail "another mean than that of the files"
import json, struct
def read(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    out = {}
    for name, tensor in head.items():
        if name == "__metadata__" or name.startswith("adam"): continue
        begin, end = tensor["data_offsets"]
        bytes_ = data[8 + n + begin:8 + n + end]
        out[name.removeprefix("live.")] = struct.unpack(f"<{len(bytes_) // 4}f", bytes_)
    return out
a, b, mean, weighted = map(read, ("good1", "good2", "mean", "weighted"))
assert a.keys() == b.keys() == mean.keys() == weighted.keys() and a
for name in a:
    for x, y, m, w in zip(a[name], b[name], mean[name], weighted[name]):
        assert abs(m - (x + y) / 2) <= 1e-6 * (abs(x) + abs(y)), (name, x, y, m)
        assert abs(w - (x + 3 * y) / 4) <= 1e-6 * (abs(x) + abs(y)), (name, x, y, w)
PY

# -- it has the manifest of the common run, or the named one; models of different runs give none
tw run new gentle --preset btm --data text.txt --out gentle --set model.layers=1 --set model.width=32 \
    --set model.heads=2 --set model.context=32 --set train.batch=8 --set train.tokens=76800 \
    --set train.warmup_tokens=1k --set train.lr=0.001 >/dev/null
tw train --run gentle --data text.txt --out good3 --threads 1 --steps 3 >/dev/null 2>&1
tw merge good1 good3 --out mixed | grep -q 'mixed; name the manifest with --run' || fail "no word of --run"
! tw generate mixed --tokens 4 2>err.txt || fail "a merge of two runs carries a manifest"
grep -q 'name its manifest with --run' err.txt || fail "$(cat err.txt)"
tw merge good1 good3 --out named --run run | grep -q 'named, with its manifest' || fail "--run is lost"
for file in mean named; do
    tw generate $file --tokens 4 >/dev/null 2>&1 || fail "$file wants a manifest"
    tw export $file --out $file-hf >/dev/null || fail "$file wants a manifest for export"
done
tw merge mean good2 --out again | grep -q 'with its manifest' || fail "a merge in a merge"

# -- by the loss: the poor model has a small weight, greedy leaves it out, and the mean is better
#    without it and worse without a good model
tw merge good1 good2 poor --data text.txt --ablate --json >ablate.json
tw merge good1 poor good2 --data text.txt --weights loss --json >loss.json
tw merge poor good1 good2 --data text.txt --weights greedy --out soup --json >greedy.json
tw merge poor good1 good2 --data text.txt --weights greedy | grep -q 'chosen on this text' ||
    fail "greedy says nothing of what it chose by"
tw eval soup --data text.txt --json >soup.json # it has a manifest
python3 - <<'PY' || fail "$(cat ablate.json loss.json greedy.json soup.json)"
import json
ablate, loss, greedy, soup = (json.load(open(f + ".json")) for f in ("ablate", "loss", "greedy", "soup"))
merged = ablate["validation_nats"]
good1, good2, poor = (m["validation_nats_without"] for m in ablate["models"])
assert poor < merged < min(good1, good2), ablate
weights = [m["weight"] for m in loss["models"]]
assert loss["chosen_on_validation"] and greedy["chosen_on_validation"], (loss, greedy)
assert "chosen_on_validation" not in ablate, ablate
assert abs(sum(weights) - 1) < 1e-5 and weights[1] < 0.01 < min(weights[0], weights[2]), loss
assert greedy["models"][0]["weight"] == 0 and greedy["out"] == "soup", greedy
assert greedy["validation_nats"] <= min(m["validation_nats"] for m in greedy["models"]), greedy
assert abs(greedy["validation_nats"] - soup["validation_nats"]) < 1e-5, (greedy, soup)
PY

# -- refusals, with their reasons
refused() {
    local why=$1
    shift
    if tw merge "$@" 2>err.txt >/dev/null; then fail "not refused: $*"; fi
    grep -q -- "$why" err.txt || fail "$*: $(cat err.txt)"
}
refused 'at least two' good1 --out x
refused 'usage' --out x
refused 'needs held-out text' good1 good2 --out x --weights loss
refused 'needs held-out text' good1 good2 --out x --ablate
refused 'one number for each of the 2' good1 good2 --out x --weights 1,2,3
refused 'one number for each of the 2' good1 good2 --out x --weights 0,0
refused 'one number for each of the 2' good1 good2 --out x --weights 1,nan
refused 'give --out FILE' good1 good2
refused 'not overwritten' good1 good2 --out mean
refused 'nowhere: No such file' good1 nowhere --out x
refused 'must be above 0' good1 good2 --data text.txt --weights loss --temperature 0
tw run new other --out other --set model.layers=1 --set model.width=64 --set model.heads=2 \
    --set model.context=32 --set train.tokens=38400 --set train.warmup_tokens=1k >/dev/null
tw train --run other --data text.txt --out wide --threads 1 --steps 1 >/dev/null 2>&1
refused 'wide' good1 wide --out x
[[ ! -e x ]] || fail "a refused merge left a file"
echo "merged: $(cat greedy.json)"

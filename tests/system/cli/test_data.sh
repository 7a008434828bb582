#!/usr/bin/env bash
# Datasets on the command line: shown, verified, weighted, named by a run, trained on, growing and
# damaged. BIN: folder of the built programs.
set -euo pipefail
BIN=$1
export LC_ALL=C.UTF-8 COLUMNS=160
home=$(mktemp -d /tmp/tw_data_XXXXXX)
trap 'rm -rf "$home"' EXIT
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

awk 'BEGIN { for (i = 0; i < 3000; i++) print "the king of verse " i " saw the water." }' >prose.txt
awk 'BEGIN { for (i = 0; i < 2000; i++) print "int f" i "(void) { return " i "; }" }' >code.c
tw data prepare --out d --tokenizer bytes --source prose=0.7 prose.txt --source code=0.3 code.c \
    --text lines --heldout 2% >/dev/null 2>&1

# -- a split that no run can have
expect 2 '--heldout 0: a share from 0.1% to 50%' tw data prepare --out none prose.txt --heldout 0
expect 0 'held out' tw data prepare --out small prose.txt --text lines --heldout 0.1%
expect 0 'it sets data.tokenizer = bytes, data.heldout = 0.001,' tw run new small --data small \
    --set model.context=32

# -- a text is refused as either kind of tokenizer
expect 2 'prose.txt: it is not a tokenizer.json: ' tw data prepare code.c --out none --tokenizer prose.txt
expect 2 'tokenizer none.json: No such file' tw data prepare code.c --out none \
    --tokenizer none.json

# -- a bad document is named, and the way past it
printf '{"text": "a", "score": NaN}\n{"text": null}\n' >null.jsonl
expect 4 'null.jsonl:2: the field "text" is null, not a string$' tw data prepare null.jsonl --out none
grep -q '^thinwire: --skip-bad counts and leaves out such documents' out.txt

# -- a run trains on the bytes of a text, so these must be text
expect 3 'null.jsonl is JSON, and a run would train on its bytes' tw run new none --data null.jsonl
expect 4 'null.jsonl is JSON, and a run would train on its bytes' tw data info null.jsonl
expect 4 'd/code-heldout-00000.shard is a shard of a prepared dataset' tw data prepare d --out none

# -- its content, as text and as JSON
expect 0 '^  code +30.0 % +2 ' tw data info d --verify
grep -q '^Every byte matches its checksum' out.txt
grep -q 'the king of verse 0 saw the water' out.txt
tw data info d --json >info.json
python3 - <<'PY'
import hashlib, json
info = json.load(open("info.json"))
assert info["sha256"] == hashlib.sha256(open("d/dataset", "rb").read()).hexdigest(), info
assert info["kind"] == "dataset" and info["files"] == info["files_here"] == 4, info
assert [s["name"] for s in info["sources"]] == ["prose", "code"], info
assert sum(s["documents"] + s["heldout_documents"] for s in info["sources"]) == 5000, info
assert info["samples"][0] == "the king of verse 0 saw the water.", info
PY
tw data info d --verify | awk 'length > 80 { print "wide: " $0; exit 1 }'
python3 - <<'PY' # a Megatron pair with an empty first document
import struct
open("m.bin", "wb").write(struct.pack("<200H", *range(60000, 60200)))
open("m.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3) +
                          struct.pack("<2i2q3q", 0, 200, 0, 0, 0, 1, 2))
PY
tw data info m --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["samples"]) == 1'
tw data info m.idx | awk 'length > 80 { print "wide: " $0; exit 1 }'
expect 0 'one shard of a dataset' tw data info d/code-train-00000.shard
expect 0 'a text, its bytes are the tokens' tw data info prose.txt
expect 0 'these data have no checksums' tw data info prose.txt --verify
expect 0 '"verified": false' tw data info prose.txt --verify --json
! grep -q documents out.txt
expect 4 'none: No such file' tw data info none
expect 2 'usage: thinwire data info PATH' tw data info
expect 2 '`--all` is unknown' tw data info d --all
expect 2 'did you mean `data info`' tw data inof d
expect 2 '`data info' tw data

# -- other weights are another dataset
expect 0 'code +0.75$' tw data weigh d prose=1 code=3
expect 0 'code +75.0 %' tw data info d
expect 2 'code has no share' tw data weigh d prose=1
expect 2 'did you mean prose' tw data weigh d prosa=1 code=1
expect 2 'write NAME=SHARE' tw data weigh d prose=0 code=1
expect 2 'usage: thinwire data weigh' tw data weigh d
tw run new old --data d --set train.tokens=40k --set train.warmup_tokens=1k >/dev/null
expect 0 'The dataset has a new SHA-256' tw data weigh d size
expect 0 'prose +by size' tw data weigh d size
expect 0 'd has these weights already: nothing has changed' tw data weigh d size
expect 0 '"changed": false, "weights": \{"prose": null, "code": null\}' tw data weigh d size --json

# -- a run that names this dataset, and one that names the old one
expect 0 'it sets data.tokenizer = bytes, data.heldout = 0.02' tw run new both --data d \
    --set model.layers=1 --set model.width=16 --set model.heads=2 --set model.context=32 \
    --set train.batch=4 --set train.tokens=40k --set train.warmup_tokens=1k \
    --set data.documents=masked --set data.curriculum=20%
grep -q '^data.form = dataset' both.manifest
expect 3 'it holds out a share of 0.02, and data.heldout of the run is 0.2' \
    tw run new x --data d --set data.heldout=0.2
expect 3 'no shard of a source has the 131073 tokens of one window' \
    tw run new x --data d --set model.context=131072
head -300 prose.txt >short.txt
tw data prepare --out tiny short.txt --text lines --heldout 20% --shard-tokens 1024 >/dev/null
expect 3 'no shard has the 2049 tokens of one window' tw run new x --data tiny \
    --set model.context=2048
tw run new any --set model.context=2048 --set data.heldout=0.2 >/dev/null
expect 4 'no shard has the 2049 tokens of one window' tw train --run any.manifest --data tiny --plan
head -c 5000 prose.txt >page.txt
expect 3 'too few for one window of 1025' tw run new x --data page.txt --set model.context=1024
[[ ! -e x.manifest ]]
expect 4 'is not the dataset of this run' tw train --run old.manifest --data d --plan
expect 4 'is not a dataset, but the manifest names one' tw train --run both.manifest \
    --data prose.txt --plan
expect 4 'a folder without a dataset' tw run new x --data "$home"

# -- a wrong text, which only the worker finds: `start` waits for its word, twice
tw run new plain --data prose.txt --set model.layers=1 --set model.width=16 --set model.heads=2 \
    --set model.context=32 --set train.batch=4 --set train.tokens=40k --set train.warmup_tokens=1k >/dev/null
tw init --dir wrong --run plain.manifest --data short.txt --listen 127.0.0.1:0 >/dev/null
for _ in 1 2; do
    expect 4 'thinwired did not start; its log is' tw --config wrong/node.conf start
done

# -- a node with this dataset, or with wrong data
check() { tw --config node.conf config check 2>&1; }
brings() {
    printf '[node]\nstate_dir = s\nrun_dir = s\nrun = %s\ndata = %s\n' "$1" "$2" >node.conf
    printf '[network]\nlisten = 127.0.0.1:0\n' >>node.conf
}
tw init --config node.conf --name x --state-dir s --run-dir s --run both.manifest --data d \
    --listen 127.0.0.1:0 >/dev/null
expect 0 'good  training data [^,]*$' check
brings both.manifest prose.txt
expect 4 'is a text, and the run is trained on a dataset: .* it is fetched' check
brings old.manifest d
expect 4 'its SHA-256 differs\): copy the right one, or leave `data` out' check
brings broken.manifest d && echo garbage >broken.manifest
sed -i '/^data/d' node.conf
expect 3 'broken.manifest' check
! check | grep -q 'no training text'
brings both.manifest d
mv d/prose-train-00000.shard hidden
expect 0 'good  training data .*, 3 of 4 shards are here$' check
mv hidden d/prose-train-00000.shard

# -- trained on and resumed in the same order, through the end of the curriculum
train() { tw train --data d --threads 1 --eval-steps 0 --json "$@" 2>/dev/null; }
curve() { cat "$@" | grep '"event": "step"' | sed 's/, "tokens_per_s.*//'; }
train --run both.manifest --out whole.safetensors --steps 90 >whole.json
train --run both.manifest --out parts.safetensors --steps 30 >first.json
train --from parts.safetensors --steps 90 >second.json
diff <(curve whole.json) <(curve first.json second.json)
cmp whole.safetensors parts.safetensors

# -- a dataset without its tokenizer is incomplete, and a model without one says so
tw export whole.safetensors --out hf >/dev/null
tw data prepare short.txt --out words --tokenizer hf/tokenizer.json --text lines >/dev/null 2>&1
expect 0 '^Every byte matches its checksum' tw data info words --verify
tw run new words --data words --set model.layers=1 --set model.width=16 --set model.heads=2 \
    --set model.context=32 --set train.batch=4 --set train.tokens=4k --set train.warmup_tokens=1k \
    >/dev/null
tw train --run words.manifest --data words --steps 1 --out words.safetensors --eval-steps 0 2>/dev/null
expect 0 'without --tokenizer FILE the folder has no vocabulary' tw export words.safetensors --out mute
expect 0 '"vocabulary": false' tw export words.safetensors --out mute.gguf --format gguf --json
expect 0 '"vocabulary": true' tw export words.safetensors --out speaks --json \
    --tokenizer hf/tokenizer.json

# -- a model and a dataset of different tokenizers; another way to write the same one is no difference
expect 0 'nats/token' tw eval speaks --run words.manifest --data words
python3 - <<'PY'
import json
t = json.load(open("speaks/tokenizer.json"))
json.dump(t, open("speaks/tokenizer.json", "w"), indent=1)
PY
expect 0 'nats/token' tw eval speaks --run words.manifest --data words
python3 - <<'PY'
import json
t = json.load(open("speaks/tokenizer.json"))
t["post_processor"] = {"type": "TemplateProcessing", "special_tokens": {"B": {"id": "B", "ids": [7], "tokens": ["B"]}},
                       "single": [{"SpecialToken": {"id": "B"}}, {"Sequence": {"id": "A"}}]}
json.dump(t, open("speaks/tokenizer.json", "w"))
PY
expect 0 'documents of words begin with no token, texts of the model begin with 7: to change that, prepare' \
    tw eval speaks --run words.manifest --data words
python3 - <<'PY'
import json
t = json.load(open("speaks/tokenizer.json"))
names = {v: k for k, v in t["model"]["vocab"].items()}
t["model"]["vocab"][names[65]], t["model"]["vocab"][names[70]] = 70, 65
json.dump(t, open("speaks/tokenizer.json", "w"))
PY
expect 4 'words has the tokens of another tokenizer than the model .65 is the first that differs.: prepare' \
    tw eval speaks --run words.manifest --data words
expect 4 'another tokenizer than the model' tw train --from speaks --run words.manifest --data words --plan
rm words/tokenizer.json
expect 4 'its tokenizer.json is missing' tw data info words --verify
expect 0 'shows the samples as text' tw data info words

# -- growing: training on the files that are there; no file and damage have a sentence each
mv d/prose-train-00000.shard hidden
expect 0 '3 of 4 files are here' tw train --run both.manifest --data d --plan
expect 4 '1 of 4 shards are missing' tw data info d --verify
mv d/code-train-00000.shard hidden.too
expect 4 'no whole shard for training yet' tw train --run both.manifest --data d --plan
mv hidden d/prose-train-00000.shard
mv hidden.too d/code-train-00000.shard
printf x | dd of=d/code-train-00000.shard bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 4 'code-train-00000.shard is damaged within bytes 4096' tw data info d --verify
expect 4 'is damaged within bytes 4096' tw train --run both.manifest --data d --threads 1 \
    --out damaged.safetensors
echo "a dataset was shown, verified, weighed, trained on, grown and damaged"

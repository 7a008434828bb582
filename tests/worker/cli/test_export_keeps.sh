#!/usr/bin/env bash
# An export of an imported model says its positions and its chat template, not those of training alone.
#   test_export_keeps.sh SOURCE THINWIRE_ENGINE
set -euo pipefail
source=$1 engine=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
fail() { echo "$1" >&2; exit 1; }

cp -r "$source/tests/golden/hf/llama" model
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 131072/' model/config.json
cat >model/tokenizer.json <<'END'
{"added_tokens": [], "normalizer": null, "post_processor": null, "decoder": {"type": "ByteLevel"},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}
END
echo '{{ messages }}' >model/chat_template.jinja
"$engine" import model --context 64 --out m.safetensors --run m.manifest >import.log
"$engine" export m.safetensors --run m.manifest --tokenizer model/tokenizer.json --out hf >/dev/null
grep -q '"max_position_embeddings": 131072' hf/config.json || fail "the context of training is exported"
"$engine" export m.safetensors --run m.manifest --tokenizer model/tokenizer.json --context 64 --out short >/dev/null
grep -q '"max_position_embeddings": 64' short/config.json || fail "--context is not obeyed"
"$engine" export m.safetensors --run m.manifest --out bare >/dev/null 2>&1
grep -q '"max_position_embeddings": 64' bare/config.json || fail "positions from nowhere"
"$engine" export model --format gguf --eos 2 --out m.gguf >/dev/null
grep -aq 'tokenizer.chat_template' m.gguf || fail "no chat template in the GGUF"
grep -aq '{{ messages }}' m.gguf || fail "another chat template in the GGUF"
rm model/chat_template.jinja
"$engine" export model --format gguf --eos 2 --out n.gguf >/dev/null
grep -aq 'tokenizer.chat_template' n.gguf && fail "a chat template from nowhere"
exit 0

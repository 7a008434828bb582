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
cat >model/generation_config.json <<'END'
{"eos_token_id": 2, "temperature": 0.6, "top_p": 0.9, "do_sample": true}
END
echo '{"tokenizer_class" : "TokenizersBackend", "eos_token": null, "kept": 7}' >model/tokenizer_config.json
sed -i '0,/{/s//{"our_own": [1, 1e-05],/' model/config.json
"$engine" import model --context 64 --out m.safetensors --run m.manifest >import.log
"$engine" export m.safetensors --run m.manifest --tokenizer model/tokenizer.json --out hf >/dev/null
grep -q '"max_position_embeddings": 131072' hf/config.json || fail "the context of training is exported"
cmp -s model/generation_config.json hf/generation_config.json || fail "the way to sample is lost"
grep -q '"PreTrainedTokenizerFast", "eos_token": null, "kept": 7' hf/tokenizer_config.json ||
    fail "transformers 4 cannot load the tokenizer"
"$engine" export model --dtype bf16 --eos 1 --out whole >/dev/null
python3 - <<'END'
import json
own, hf, whole = (json.load(open(f"{name}/config.json")) for name in ("model", "hf", "whole"))
def changed(new):
    return {key: new.get(key) for key in own.keys() | new.keys() if own.get(key) != new.get(key)}
dtype = "dtype" if "dtype" in own else "torch_dtype"
assert set(changed(hf)) <= {dtype} and hf[dtype] == "float32", changed(hf)
assert set(changed(whole)) <= {dtype, "eos_token_id"}, changed(whole)
assert whole[dtype] == "bfloat16" and whole["eos_token_id"] == 1, changed(whole)
END
"$engine" export m.safetensors --run m.manifest --tokenizer model/tokenizer.json --context 64 --out short >/dev/null
grep -q '"max_position_embeddings": 64' short/config.json || fail "--context is not obeyed"
"$engine" export m.safetensors --run m.manifest --out bare >/dev/null 2>&1
grep -q '"max_position_embeddings": 64' bare/config.json || fail "positions from nowhere"
"$engine" export model --format gguf --eos 2 --out m.gguf >/dev/null
grep -aq 'tokenizer.chat_template' m.gguf || fail "no chat template in the GGUF"
grep -aq '{{ messages }}' m.gguf || fail "another chat template in the GGUF"
mkdir other
sed 's/"a": 0, "b": 1/"a": 1, "b": 0/' model/tokenizer.json >other/tokenizer.json
"$engine" generate model --tokenizer other/tokenizer.json --tokens 1 --prompt ab >/dev/null 2>said
grep -q 'other tokens than model/tokenizer.json, the model.s own (0 is the first' said ||
    fail "another tokenizer is taken in silence"
"$engine" generate model --tokenizer model/tokenizer.json --tokens 1 --prompt ab >/dev/null 2>said
grep -q 'other tokens' said && fail "its own tokenizer is called another"
rm model/chat_template.jinja
"$engine" export model --format gguf --eos 2 --out n.gguf >/dev/null
grep -aq 'tokenizer.chat_template' n.gguf && fail "a chat template from nowhere"
exit 0

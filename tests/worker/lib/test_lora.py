"""test_lora.py LIBRARY BIN PYTHON [WIDTH LAYERS TOKENS] - three nodes fine-tune adapters.

Each node runs deploy/examples/finetune_lora.py on chats of its own: one creates the run, two join.
PYTHON has torch, transformers, peft and jinja2. A node whose base model is another is refused. All
nodes must end with the same adapters, of which one factor was never sent, and with their model
merged, by peft and by `export --adapter`: it loads in transformers with the same logits. WIDTH and
LAYERS give the size of the random base model, a Qwen3, TOKENS the run's budget.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "tests/system"))

import ports  # noqa: E402

TUNER = ROOT / "deploy/examples/finetune_lora.py"
LONG_S = 3000  # a large base model takes seconds for a step
PATIENCE_S = 120
SMALL = ["64", "2", "400k"]  # long enough for trainers that start unequally fast
NAMES = ("<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for m in messages %}"
            "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
WORDS = (("the north wind", "blows cold"), ("the south wind", "blows warm"),
         ("the west wind", "brings rain"))


def make(folder, width, layers, seed):
    """Writes a base model of random weights, with a token for each byte and two for chats."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=256 + len(NAMES), max_position_embeddings=128, hidden_size=width,
        intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=width // 32,
        num_key_value_heads=width // 32, head_dim=32, tie_word_embeddings=True))
    model.save_pretrained(folder)
    symbols = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.Tokenizer(tokenizers.models.BPE({s: i for i, s in enumerate(symbols)}, []))
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.add_special_tokens(list(NAMES))
    saved = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token=NAMES[1])
    saved.chat_template = TEMPLATE
    saved.save_pretrained(folder)
    print(sum(p.numel() for p in model.parameters()))


def judge(folder):
    """The adapters are equal, have learned, and can be merged into the base model."""
    import peft
    import torch
    import transformers
    from safetensors.torch import load_file

    folder = pathlib.Path(folder)
    tuned = [load_file(folder / f"tuned{i}/adapter_model.safetensors") for i in range(3)]
    for idx, other in enumerate(tuned[1:], 1):
        assert other.keys() == tuned[0].keys()
        worst = max(float((other[name] - tuned[0][name]).abs().max()) for name in other)
        assert worst == 0, f"the adapters of nodes 0 and {idx} differ by {worst}"
    assert all(float(x.abs().max()) > 0 for x in tuned[0].values())
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
    text = torch.tensor([list(range(40, 80))])
    model = peft.PeftModel.from_pretrained(base, folder / "tuned0").eval()
    with torch.no_grad():
        adapted = model(text).logits
        with model.disable_adapter():
            assert (model(text).logits - adapted).abs().max() > 0.01, "the adapters do nothing"
    model.merge_and_unload().save_pretrained(folder / "merged")
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "merged").eval()
    with torch.no_grad():
        apart = float((merged(text).logits - adapted).abs().max())
    assert apart < 1e-3, f"logits of the merged model differ by {apart}"
    ours = load_file(folder / "ours/model.safetensors")
    theirs = load_file(folder / "merged/model.safetensors")
    assert set(ours) == set(theirs)
    worst = max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)
    assert worst < 1e-5, f"`export --adapter` and peft differ by {worst}"
    sizes = {factor: sum(x.numel() for name, x in tuned[0].items() if factor in name)
             for factor in ("lora_A", "lora_B")}
    print(f"{sizes['lora_B']} numbers of lora_B, {sizes['lora_A']} of lora_A; logits of the merged "
          f"model differ by {apart:.1g}")


class Tuners:
    """The scripts of three users."""

    def __init__(self, library, bin_dir, folder, python):
        self.folder, self.python = folder, python
        self.environment = {
            **os.environ, "THINWIRE_LIBRARY": str(library), "THINWIRE_BIN": str(bin_dir),
            "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "worker/python"),
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.started = []

    def start(self, idx, *words, base="base"):
        """Starts a user's script on chats of his own."""
        chats = self.folder / f"chats{idx}.jsonl"
        ask, answer = WORDS[idx]
        chats.write_text("".join(json.dumps({"messages": [
            {"role": "user", "content": f"{ask} {i}"},
            {"role": "assistant", "content": f"{answer} {i % 7}"}]}) + "\n" for i in range(400)),
            encoding="utf-8")
        out = self.folder / f"out{len(self.started)}.log"
        with open(out, "wb") as log:
            process = subprocess.Popen(
                [self.python, TUNER, "--model", self.folder / base, "--chat", chats, "--batch", "4",
                 "--context", "64", "--rate", "0.01", "--rank", "8", "--listen",
                 f"127.0.0.1:{ports.hold()}", "--out", self.folder / f"tuned{idx}", *words],
                env={**self.environment, "XDG_STATE_HOME": str(self.folder / f"user{idx}")},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        process.out = out
        self.started.append(process)
        return process

    def ticket(self, process):
        """The ticket that a script prints."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = re.search("^ticket: (tw1[a-z0-9]+)$", process.out.read_text(), re.MULTILINE)
            if found:
                return found[1]
            assert process.poll() is None, "the script of node 0 has ended"
            time.sleep(0.1)
        raise AssertionError("no ticket")

    def end(self):
        """Ends all scripts, and with them their daemons."""
        for process in self.started:
            process.terminate()
            process.wait()


def call(environment, *command):
    """The output of a command."""
    done = subprocess.run([str(word) for word in command], env=environment, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check(library, bin_dir, folder, python, size):
    """Makes the models, trains, and judges."""
    tuners = Tuners(library, bin_dir, folder, python)
    whole = int(call(tuners.environment, python, HERE, "make", folder / "base", *size[:2], 1)
                .split()[-1])
    call(tuners.environment, python, HERE, "make", folder / "other", *size[:2], 2)
    try:
        first = tuners.start(0, "--create", "tuned", "--tokens", size[2])
        ticket = tuners.ticket(first)
        second = tuners.start(1, "--join", ticket)
        refused = tuners.start(2, "--join", ticket, base="other")
        assert refused.wait(LONG_S) != 0, "another base model was taken"
        text = refused.out.read_text()
        assert "frozen parameters have other numbers. Make the model in the same way, and load " \
            "the same base model before" in text, text
        third = tuners.start(2, "--join", ticket)
        for process in (first, second, third):
            assert process.wait(LONG_S) == 0, f"{process.out.name}: a script failed"
        call(tuners.environment, bin_dir / "thinwire-engine", "export", folder / "base",
             "--adapter", folder / "tuned0", "--out", folder / "ours")
        told = call(tuners.environment, python, HERE, "judge", folder)
        print(told)
        sent = int(re.search("^run tuned, ([0-9,]+) parameters", first.out.read_text(),
                             re.MULTILINE)[1].replace(",", ""))
        assert sent == int(told.split()[0]), "other tensors than lora_B were merged"
        log = (folder / "user0/thinwire/tuned/log").read_text(errors="replace")
        moved = [int(n) for n in re.findall(r"ev=round_done .*?contributors=3 .*?bytes=(\d+)", log)]
        assert len(moved) >= 2 and max(moved) < whole / 2, moved
        assert re.search(r"rounds, [0-9,]+ bytes up and [0-9,]+ down a round",
                         first.out.read_text()), "the bytes of a round are not told"
        print(f"{whole} parameters of the base model, {len(moved)} rounds of three nodes, "
              f"{max(moved)} bytes a fragment and round; the base model has {4 * whole}")
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        tuners.end()


def main():
    """Runs the test, or a part of it that needs the libraries."""
    if sys.argv[1] == "make":
        make(sys.argv[2], *(int(word) for word in sys.argv[3:6]))
    elif sys.argv[1] == "judge":
        judge(sys.argv[2])
    else:
        library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
        python, size = sys.argv[3], sys.argv[4:7] or SMALL
        if subprocess.run([python, "-c", "import torch, transformers, peft, jinja2"], check=False,
                          capture_output=True).returncode != 0:
            print(f"{python} has no transformers, peft and jinja2: skipped")
            sys.exit(77)
        with tempfile.TemporaryDirectory(prefix="twlo") as name:
            folder, began = pathlib.Path(name), time.monotonic()
            check(library, bin_dir, folder, python, size)
            print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

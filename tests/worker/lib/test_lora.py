"""test_lora.py LIBRARY BIN PYTHON [WIDTH LAYERS TOKENS] - three nodes fine-tune adapters.

Each node runs deploy/examples/finetune_lora.py. PYTHON has torch, transformers and peft. All nodes
must end with the same adapters, and with their model merged: it loads in transformers with the same
logits. WIDTH and LAYERS give the size of the random base model, TOKENS the run's budget.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import test_examples as examples

HERE = pathlib.Path(__file__).resolve()
TUNER = examples.ROOT / "deploy/examples/finetune_lora.py"
KEYS = ["--batch", "4", "--context", "64", "--set", "train.lr=0.01", "--set", "sync.period=20"]
LONG_S = 3000  # a large base model takes seconds for a step
SMALL = ["64", "2", "500k"]  # long enough for trainers that start unequally fast


def make(folder, width, layers):
    """Writes a base model of random weights, with a token for each byte."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=width, n_layer=layers, n_head=width // 32))
    model.save_pretrained(folder)
    symbols = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.Tokenizer(tokenizers.models.BPE({s: i for i, s in enumerate(symbols)}, []))
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
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
    assert any(float(x.abs().max()) > 0 for name, x in tuned[0].items() if "lora_B" in name)
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
    print(f"{sum(x.numel() for x in tuned[0].values())} parameters; logits of the merged model "
          f"differ by {apart:.1g}")


class Cluster(examples.Cluster):
    """Three nodes with the example's trainer."""

    def __init__(self, library, bin_dir, folder, python, tokens):
        keys = ["--tensors", folder / "first/adapter_model.safetensors", "--train", "*lora_*",
                "--base", folder / "base/model.safetensors", "--tokens", tokens, *KEYS]
        super().__init__(library, bin_dir, TUNER, folder, 3, keys)
        self.python = python
        self.environment.update(HF_HUB_OFFLINE="1")

    def start(self, idx):
        """Starts a daemon, and its trainer beside it."""
        config = self.folder / f"n{idx}.conf"
        peers = ", ".join(f"127.0.0.1:{self.held[i]}" for i in range(3) if i != idx)
        examples.run(self.bin / "thinwire", "init", "--config", config, "--name", f"n{idx}",
                     "--state-dir", self.folder / f"n{idx}", "--run-dir",
                     self.folder / f"n{idx}.run", "--run", self.folder / "manifest", "--data",
                     self.folder / "text", "--listen", f"127.0.0.1:{self.held[idx]}", "--peers",
                     peers)
        text = config.read_text(encoding="ascii")
        config.write_text(text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1),
                          encoding="ascii")
        self.spawn(f"n{idx}", self.bin / "thinwired", "--config", config)
        return self.spawn(f"trainer{idx}", self.python, TUNER, "--model", self.folder / "base",
                          "--text", self.folder / "text", "--socket",
                          self.folder / f"n{idx}.run/worker.sock", "--out",
                          self.folder / f"tuned{idx}")


def check(library, bin_dir, folder, python, size):
    """Makes the model and the run, trains, and judges."""
    environment = {**os.environ, "THINWIRE_LIBRARY": str(library), "HF_HUB_OFFLINE": "1",
                   "PYTHONPATH": str(examples.ROOT / "worker/python")}

    def call(*command):
        done = subprocess.run([str(word) for word in command], env=environment, check=False,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    whole = int(call(python, HERE, "make", folder / "base", *size[:2]).split()[-1])
    call(python, TUNER, "--model", folder / "base", "--text", folder / "text", "--first",
         folder / "first")
    cluster = Cluster(library, bin_dir, folder, python, size[2])
    try:
        trainers = [cluster.start(0)]
        cluster.wait_member(0)
        trainers += [cluster.start(1), cluster.start(2)]
        for trainer in trainers:
            assert trainer.wait(LONG_S) == 0, "a trainer failed"
        print(call(python, HERE, "judge", folder))
        moved = round_bytes(folder)
        loss = cluster.status(0)["train"]["validation_anchor_nats"]
        print(f"{whole} parameters of the base model, {loss:.2f} nats held out, {len(moved)} rounds"
              f" of three nodes, {max(moved)} bytes a fragment and round; the base model has "
              f"{4 * whole}")
        assert len(moved) >= 2 and max(moved) < whole / 2
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        cluster.end()


def round_bytes(folder):
    """Bytes of each round of three nodes, from the log of node 0."""
    text = (folder / "n0.log").read_text(encoding="utf-8", errors="replace")
    return [int(n) for n in re.findall(r"ev=round_done .*?contributors=3 .*?bytes=(\d+)", text)]


def main():
    """Runs the test, or a part of it that needs the libraries."""
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "judge":
        judge(sys.argv[2])
    else:
        library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
        python, size = sys.argv[3], sys.argv[4:7] or SMALL
        if subprocess.run([python, "-c", "import torch, transformers, peft"], check=False,
                          capture_output=True).returncode != 0:
            print(f"{python} has no transformers and peft: skipped")
            sys.exit(77)
        with tempfile.TemporaryDirectory(prefix="twlo") as name:
            folder, began = pathlib.Path(name), time.monotonic()
            examples.write_text(folder / "text")
            check(library, bin_dir, folder, python, size)
            print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

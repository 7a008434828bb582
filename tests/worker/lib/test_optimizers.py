"""test_optimizers.py LIBRARY BIN [CASE...] - optimizers, precisions and trainers of scripts.

Each case makes a run with `create`, closes its node, goes on with a new model and optimizer, and
trains to the end beside a node that joins. Both must learn and end with one model. Cases whose
package the Python that runs it lacks are skipped; all want torch 2.15, and `amsgrad` and `two` any.
"""
import importlib.util
import pathlib
import sys
import tempfile

import test_home

HEAD = '''
import contextlib, math, os, sys, time, torch, thinwire.torch as tw
torch.set_num_threads(1)
wants = torch.nn.Linear(8, 1)
for p in wants.parameters():
    torch.nn.init.constant_(p, 0.3)
LISTEN = "127.0.0.1:PORT"
ROLE, TICKET = "THE_ROLE", "THE_TICKET"
OPTIONS = dict(tokens=24000, step_tokens=32, nodes=2, settings={"sync.period": 20})

def say(*words):
    print(*words, flush=True)

def plain():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

def data():
    x = torch.randn(32, 8)
    return x, wants(x).detach()

def loss_of(model):
    x, y = data()
    return ((model(x).float() - y) ** 2).mean()

def total(model):
    return sum(float(p.detach().double().sum()) for p in model.parameters())

def await_peer(node):
    while not node.home.status()["sync"]["alive_peers"]:
        time.sleep(0.1)
'''
# A case makes `model` and `optimizer` in make(), and takes a step of the optimizer in train().
MAKE = '''
def make():
    model = plain()
    return model, OPTIMIZER
'''
TRAIN = '''
def train(model, optimizer):
    loss = loss_of(model)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
'''
LOOP = '''
torch.manual_seed(SEED)
model, optimizer = make()
if ROLE == "create":
    node = tw.create("tried", model, optimizer, listen=LISTEN, **OPTIONS)
    for _ in range(60):
        node.step(train(model, optimizer))
    node.close()
    model, optimizer = make()
    node = tw.create("tried", model, optimizer, listen=LISTEN, **OPTIONS)
    kept = tw._plain_optimizer(optimizer).state.values()
    say("on", node.step_count, sum(bool(state) for state in kept))
    say("ticket", node.invite())
    await_peer(node)
else:
    node = tw.join(TICKET, model, optimizer, listen=LISTEN)
with node:
    while node.goes_on:
        time.sleep(0.002)
        loss = train(model, optimizer)
        node.step(loss)
optimizer.state_dict()
with torch.no_grad():
    say("loss", float(loss_of(model)))
say("total", total(model))
'''
WORDS = '''
import pathlib
from tokenizers import Tokenizer, models, pre_tokenizers
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import SFTConfig, SFTTrainer
from thinwire.transformers import NodeCallback
words = ["<pad>", "<end>", "<unk>"] + "one two three four five six seven eight".split()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(
    {w: i for i, w in enumerate(words)}, unk_token="<unk>")), pad_token="<pad>", eos_token="<end>",
    unk_token="<unk>")
tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
torch.manual_seed(7)
model = Qwen3ForCausalLM(Qwen3Config(
    vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    eos_token_id=1, tie_word_embeddings=True))
rows = Dataset.from_list([{"text": " ".join(words[3 + (i + j) % 8] for j in range(12))}
                          for i in range(64)])
settings = SFTConfig(output_dir=str(pathlib.Path(__file__).with_suffix("")), max_steps=10**6,
    per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=3e-3, use_cpu=True,
    bf16=False, report_to=[], logging_steps=20, save_strategy="no", disable_tqdm=True,
    lr_scheduler_type="constant", max_length=32)
options = dict(OPTIONS, tokens=96 * 240, step_tokens=96, listen=LISTEN) if ROLE == "create" else \\
    dict(listen=LISTEN)

def begun(node):
    if ROLE == "create":
        say("ticket", node.invite())
        await_peer(node)

trainer = SFTTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer,
                     peft_config=PEFT)
name = {"create": "tried"} if ROLE == "create" else {"join": TICKET}
callback = NodeCallback(trainer, on_node=begun, **name, **options)
trainer.add_callback(callback)
trainer.train()
logged = [row["loss"] for row in trainer.state.log_history if "loss" in row]
say("logged", logged[0], logged[-1])
say("loss", logged[-1])
say("total", total(trainer.model))
'''
ADAMW = "torch.optim.AdamW(model.parameters(), lr=0.01{})"


def loop(optimizer=ADAMW.format(""), train=TRAIN, make=MAKE):
    """A script that makes, trains, goes on and trains to the end."""
    return make.replace("OPTIMIZER", optimizer) + train + LOOP


def beside(kind, dims, rate, other, other_dims, other_rate):
    """A script with an optimizer for tensors of some dimensions, and one of its own for others."""
    chosen = "torch.optim.{}([p for p in model.parameters() if p.ndim {}], lr={})"
    return loop(chosen.format(kind, dims, rate),
                TRAIN.replace("optimizer.step()", "optimizer.step()\n    rest(model)") + f"""
def rest(model):
    if others.get("of") is not model:
        others.update(of=model, by={chosen.format(other, other_dims, other_rate)})
    others["by"].step()
    others["by"].zero_grad()
others = {{}}
""")


# of each case: packages that it needs, most of the loss at the end, the parameters of which the
# optimizer has state in a new node of the run, the script
CASES = {
    "sgd": ([], 0.05, 0, loop("torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)")),
    "amsgrad": ([], 0.05, 4, loop(ADAMW.format(", amsgrad=True"))),
    "fused": ([], 0.05, 4, loop(ADAMW.format(", fused=True"))),
    "foreach": ([], 0.05, 4, loop(ADAMW.format(", foreach=True"))),
    "scaler": ([], 0.05, 4, loop(train='''
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32)
skipped = False
def train(model, optimizer):
    global skipped
    with torch.autocast("cpu", torch.float16):
        loss = loss_of(model)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < before and not skipped:
        skipped = True
        say("skipped", 1)
    return loss
''')),
    "autocast": ([], 0.05, 4, loop(train=TRAIN.replace(
        "loss = loss_of(model)",
        'with torch.autocast("cpu", torch.bfloat16):\n        loss = loss_of(model)'))),
    "compile": ([], 0.05, 4, loop(make=MAKE.replace("plain()", "torch.compile(plain())"))),
    "compiled_step": ([], 0.05, 4, loop(train='''
def train(model, optimizer):
    if "step" not in compiled or compiled["of"] is not optimizer:
        compiled.update(of=optimizer, step=torch.compile(optimizer.step))
    loss = loss_of(model)
    optimizer.zero_grad()
    loss.backward()
    compiled["step"]()
    return loss
compiled = {}
''')),
    "accumulation": ([], 0.05, 4, loop(train='''
def train(model, optimizer):
    optimizer.zero_grad()
    for _ in range(4):
        loss = loss_of(model)
        (loss / 4).backward()
    optimizer.step()
    return loss
''')),
    "muon": ([], 0.05, 0, beside("Muon", "== 2", 0.02, "AdamW", "!= 2", 0.01)),
    "two": ([], 0.05, 2, beside("AdamW", "!= 2", 0.01, "SGD", "== 2", 0.05)),
    "adam8bit": (["bitsandbytes"], 0.05, 0, "import bitsandbytes\n" + loop(
        "bitsandbytes.optim.Adam8bit(model.parameters(), lr=0.01, min_8bit_size=1)")),
    "accelerate": (["accelerate"], 0.05, 4, loop(
        make='''
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
def make():
    model = plain()
    return accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
''', train='''
def train(model, optimizer):
    while True:
        with accelerator.accumulate(model):
            loss = loss_of(model)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            return loss
''')),
    "trl": (["trl", "datasets"], 1.0, None, WORDS.replace("PEFT", "None")),
    "trl_lora": (["trl", "datasets", "peft"], 2.6, None,
                 "from peft import LoraConfig\n" + WORDS.replace(
                     "PEFT", 'LoraConfig(r=4, target_modules=["q_proj", "v_proj"])')),
}


def check(name, user, other):
    """Runs a case."""
    _, most, kept, text = CASES[name]
    whole = HEAD + text

    first = user.start("", whole.replace("THE_ROLE", "create"))
    ticket = test_home.line_of(first, "ticket")
    second = other.start("", whole.replace("THE_ROLE", "join").replace("THE_TICKET", ticket))
    assert test_home.end(first) == 0 and test_home.end(second) == 0, \
        first.err.read_text() + second.err.read_text()
    assert test_home.line_of(first, "total") == test_home.line_of(second, "total"), \
        "the models differ"
    for process in first, second:
        assert float(test_home.line_of(process, "loss")) < most, "it did not learn"
    if kept is not None:
        assert test_home.line_of(first, "on") == f"60 {kept}", "steps or moments were lost"
    log = (user.folder / "thinwire/tried/log").read_text()
    assert "contributors=2" in log, "the two never merged"


def main():
    """Runs the cases."""
    library, bin_dir = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    for name, (packages, *_) in CASES.items():
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        lacks = [word for word in ["torch", *packages] if importlib.util.find_spec(word) is None]
        if lacks:
            print(f"{name}: skipped, no {lacks[0]}")
            continue
        with tempfile.TemporaryDirectory(prefix="twopt") as path:
            folder = pathlib.Path(path)
            users = [test_home.User(folder / word, library, bin_dir, seed)
                     for seed, word in enumerate(("a", "b"))]
            test_home.guarded(folder, users, lambda name=name, users=users: check(name, *users))
        print(f"{name}: as it should be", flush=True)


if __name__ == "__main__":
    main()

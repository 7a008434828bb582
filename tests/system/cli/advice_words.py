"""advice_words.py - advice in situations that need no daemon: unknown words, files that are missing
or of the wrong kind, runs and datasets."""
import json
import random
import re
import struct

from advice import Wrong, situation, squeeze

TINY = "--set model.layers=1 --set model.width=16 --set model.heads=2 --set model.context=32 " \
       "--set train.batch=4 --set train.warmup_tokens=128 --set train.tokens=4096"

# A token for each byte.
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 324))]
TOKENIZER = json.dumps({
    "version": "1.0", "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": [], "vocab": {c: i for i, c in enumerate(LETTERS)}}})

# Advice that only names where more is told: (fragment, the line that a person types before it).
TOLD = (
    ("there is no command `%s`; `thinwire help` lists", "thinwire banana"),
    ("`%s` is %s; `thinwire help %s` explains it", "thinwire status --banana"),
    ("`thinwire help owner` lists the commands", "thinwire owner banana"),
    ("%s: `%s` is unknown%s%s; see `thinwire help %s`", "thinwire export x --banana"),
    ("usage: thinwire %s; `thinwire help %s` tells more", "thinwire export"),
    ("`data prepare INPUT... --out DIR` makes a dataset, `data info", "thinwire data banana"),
    ("usage: thinwire data info PATH", "thinwire data info"),
    ("usage: thinwire %s %s; `thinwire help %s` tells", "thinwire eval"),
    ("`%s` is unknown; see `thinwire help`", "thinwire eval --banana"),
    ("usage: thinwire data prepare INPUT", "thinwire data prepare"),
    ("data prepare: `%.60s` is unknown", "thinwire data prepare --banana"),
    ("verify: `%.60s` is unknown; see", "thinwire verify --banana"),
    ("usage: thinwire verify ARCHIVE", "thinwire verify"),
    ("usage: thinwire data weigh DIR", "thinwire data weigh"),
    ("; `thinwire help replay` explains it",
     "thinwire init --dir r && thinwire --config r/node.conf replay x y"),
    ("there is no key `%.40s`: `thinwire run keys` lists",
     "thinwire run new x --set banana.split=1"),
)


@situation("words", *(fragment for fragment, _ in TOLD))
def told(at):
    """A word that is not known, and the page that tells the known ones."""
    for fragment, typed in TOLD:
        said = at.follow(at.bad(typed), fragment)
        if not re.search("thinwire|model", said):
            raise Wrong(f"`{fragment}` leads to: {said}")


@situation("words", "did you mean `thinwire %s`?")
def synonyms(at):
    """Every word of another program names a command of this one."""
    for word in "stop down up restart new create ticket nodes watch log health check ban".split():
        for command in at.advice(at.bad(f"thinwire {word}"), "did you mean `thinwire %s`?"):
            at.good(command + " --help")


@situation("words", "thinwire-engine does train")
def engine(at):
    """The engine is not typed by people: its commands are those of thinwire."""
    said = at.bad("thinwire-engine")
    at.advice(said, "thinwire-engine does train")
    for verb in re.findall(r"\w+", said.split(" does ")[1].split(" for ")[0]):
        if verb != "and":
            at.good("thinwire run models" if verb == "models" else f"thinwire help {verb}")


# ---- runs ------------------------------------------------------------------------------------

@situation("words", "name the run: `thinwire run new bible`", "Written to %s; `thinwire run show",
           "`thinwire run new NAME --preset PRESET` starts", "`thinwire run new NAME --set KEY",
           "Begin with `thinwire run new NAME --model MODEL`",
           "together for half of the budget, then alone; `thinwire merge`",
           "`thinwire run models` names them")
def new_run(at):
    """A run without a name, and the lists of its possible parts."""
    said = at.follow(at.bad("thinwire run new"), "name the run")
    shown = at.follow(said, "Written to %s; `thinwire run show")
    if "run bible" not in shown and "bible" not in shown:
        raise Wrong(shown)
    presets = at.good("thinwire run presets")
    at.follow(presets, "starts", "--out p", NAME="p", PRESET="btm")
    at.advice(presets, "together for half of the budget")
    at.follow(at.good("thinwire run keys"), "--set KEY", "--out k", NAME="k",
              **{"KEY=VALUE": "sync.period=50"})
    models = at.follow(at.bad("thinwire run new m --model zzz"), "names them")
    for command in at.advice(models, "Begin with", NAME="m", MODEL="1m")[:1]:
        at.good(command + " --out m")


@situation("words", "data.form = dataset needs data.sha256", "security.admission = owner needs",
           "was it cut off? Copy it again", "model.family = tensors needs model.tensors",
           "group: share of the budget that nodes train together",
           "owner: the public key that signs",
           "its public half: thinwire run new NAME")
def keys_of_a_run(at):
    """Keys that need others, which a command writes."""
    at.good("thinwire data prepare text --out set --text lines")
    said = at.bad("thinwire run new d --out d --set data.form=dataset")
    at.follow(said, "needs data.sha256", "--out d", nth=0, FOLDER="set", new="new d")
    at.good("thinwire run new s --out s --set security.admission=secret")
    at.good("sed 's/^\\(security.admission = \\).*/\\1owner/' s >o")
    made = at.follow(at.bad("thinwire run show o"), "security.admission = owner needs",
                     "apart.key")
    key = at.advice(made, "its public half: thinwire run new NAME")
    line = re.search(r"thinwire run new NAME --set security.owner=\w+", made)
    if line is None or key is None:
        raise Wrong(made)
    at.good(line[0].replace("NAME", "p") + " --out p")
    at.good("thinwire run show p")
    keys = at.good("thinwire run keys")
    for fragment in ("group: share of the budget", "owner: the public key that signs"):
        for command in at.advice(keys, fragment):
            at.good(f"{command} --help")
    at.type("head -20 o >cut")
    at.bad("thinwire run show cut")
    said = at.bad("thinwire run show cut")
    at.good(at.advice(said, "was it cut off?")[0] + " whole --out whole && thinwire run show whole")
    said = at.bad("thinwire run new t --out t --set model.family=tensors")
    at.tensors("model.safetensors")
    at.follow(said, "model.family = tensors needs",
              "--out t --batch 16 --context 1024 --tokens 200m",
              NAME="t", FILE="model.safetensors")


@situation("words",
           "together for %.3g %% of the budget", "nothing is sent while training; `thinwire merge`")
def merged_runs(at):
    """Runs whose models are merged at the end."""
    for preset, fragment in (("preset=btm", "together for %.3g"),
                             ("topology=solo", "nothing is sent")):
        said = at.good(f"thinwire run new x --out {preset} --data text {TINY} "
                       f"--set sync.{preset}")
        if not (at.folder / "m1").exists():
            for name in ("m1", "m2"):
                at.good(f"thinwire train --run {preset} --data text --steps 1 --eval-steps 0 "
                        f"--out {name}")
        at.follow(said, fragment, "m1 m2 --out both-" + preset)


@situation("words", "the model has %llu parameters, and %d fragments")
def too_large(at):
    """A model that no group of nodes can exchange, and a part of it that one can."""
    said = at.bad("thinwire run new x --data text --set model.layers=341 --set model.width=16384 "
                  "--set model.heads=128")
    if (at.folder / "x.manifest").exists():
        raise Wrong("a manifest was written")
    at.tensors("w.safetensors")
    at.follow(said, "the model has", "--batch 4 --context 32 --tokens 100k", NAME="x",
              FILE="w.safetensors", PATTERN="'*'")
    at.good("thinwire run show x.manifest")


@situation("words", "; `thinwire run new` writes a manifest", "no run manifest: %s",
           "copy the file every node of the run has, or make one with `thinwire run new`",
           "Name the run's manifest", "exists, but its node has no manifest",
           "exists, but its node has no certificate", "The daemon can start with this",
           "the daemon would not start with this; `thinwire help exit-codes`")
def no_manifest(at):
    """A node without a manifest, as init, config check, doctor and the daemon tell it."""
    made = at.good("thinwire init --dir a --data text --listen 127.0.0.1:0")
    at.select("a")
    said = at.bad("thinwire config check")
    at.follow(said, "the daemon would not start")
    at.advice(said, "; `thinwire run new` writes a manifest")
    at.advice(at.bad("thinwire doctor --patience 1"), "copy the file every node")
    at.advice(at.bad("thinwire start"), "no run manifest")
    at.write("far/text", "")
    name, new = at.advice(made, "Name the run's manifest", FILE="far/run", NAME="a", TEXT="text")
    at.good(f"{new} --out far/run {TINY}")
    at.good(f"cp far/run {re.search(r'or put it at ([^ ]+)[.] Beside', squeeze(made))[1]}")
    at.follow(at.bad("thinwire init"), "its node has no certificate", FILE="far/run")
    at.good("thinwire init --dir b --data text --listen 127.0.0.1:0")
    said = at.bad("thinwire --config b/node.conf init")
    at.follow(said, "exists, but its node has no manifest", FILE="far/run", nth=-1)
    at.good("thinwire --config b/node.conf config check")
    at.good("thinwire init --dir c --data text --listen 127.0.0.1:0")
    at.good(name.replace("/a/", "/c/"))
    said = at.good("thinwire config check")
    if at.type(at.advice(said, "The daemon can start with")[0]).code:
        raise Wrong(at.good("thinwire doctor"))


# ---- data ------------------------------------------------------------------------------------

@situation("words", "and a run would train on its bytes", "is a folder without a dataset: `thin",
           "training data are a regular file that is not empty",
           "is a folder without a dataset (no file", "name a text, or a folder of `thinwire data",
           "The dataset has a new SHA-256", "a plain text is not fetched from others")
def data(at):
    """Data of a kind that no run trains on, and the dataset that is made of them."""
    at.write("a.jsonl", "".join(f'{{"text": "verse {i} of the book"}}\n' for i in range(2000)))
    said = at.bad("thinwire run new a --data a.jsonl --out a")
    at.follow(said, "would train on its bytes", "a.jsonl --out da")
    at.good(f"thinwire run new a --data da --out a {TINY}")
    at.write("folder/a.txt", (at.folder / "text").read_text())
    said = at.bad("thinwire run new b --data folder --out b")
    at.follow(said, "is a folder without a dataset: `thin", "--text lines", DIR="db")
    at.good(f"thinwire run new b --data db --out b {TINY}")
    at.write("nothing", "")
    said = at.bad("thinwire run new c --data nothing --out c")
    at.follow(said, "a regular file that is not empty", "text --text lines --out dc")
    at.good(f"thinwire run new c --data dc --out c {TINY}")
    said = at.bad("thinwire data info folder")
    at.follow(said, "(no file", "folder --text lines --out dd")
    at.good("thinwire data info dd")
    said = at.bad("thinwire data info none")
    at.follow(said, "name a text, or a folder", "text --text lines --out de")
    at.good("thinwire data info de")
    said = at.good("thinwire data weigh da text=2")
    at.follow(said, "The dataset has a new SHA-256", f"--out weighed {TINY}", NAME="w")
    at.manifest("f")
    at.good("thinwire init --dir n --run f --listen 127.0.0.1:0")
    said = at.bad("thinwired --config n/node.conf")
    at.follow(said, "a plain text is not fetched", "text --text lines --out df")
    at.good(f"thinwire run new g --data df --out g {TINY}")


@situation("words", "is text, but data.tokenizer is ids: `thinwire data prepare",
           "the dataset that `thinwire data prepare` makes of it", "Token numbers need no dataset")
def text_for_ids(at):
    """A text where numbers of tokens are wanted."""
    at.write("tok.json", TOKENIZER)
    at.good(f"thinwire run new i --out i {TINY} --set data.tokenizer=ids --set model.vocab=300")
    said = at.bad("thinwire train --run i --data text --steps 1 --out m")
    at.follow(said, "is text, but data.tokenizer", "text --text lines --out d", FILE="tok.json")
    words = re.search(r"make a run with (--set \S+ --set model.vocab=256)", said)[1]
    at.good(f"thinwire run new j --out j --data text {TINY} {words}")
    at.good("thinwire train --run j --data text --steps 1 --eval-steps 0 --out m")
    draw = random.Random(1)
    one, two = (struct.pack("<9000H", *(draw.randrange(250) for _ in range(9000)))
                for _ in range(2))
    (at.folder / "shards").mkdir()
    for name, numbers in (("web_train_000001.bin", one), ("web_train_000002.bin", two)):
        (at.folder / "shards" / name).write_bytes(struct.pack("<256i", 20240520, 1, 9000,
                                                              *[0] * 253) + numbers)
    (at.folder / "raw.bin").write_bytes(one)
    (at.folder / "numbers").mkdir()
    (at.folder / "numbers" / "raw.bin").write_bytes(one)
    said = at.bad("thinwire data prepare numbers --out none")
    at.good(at.advice(said, "need no dataset", NAME="n", FILE="raw.bin",
                      **{"vocab=N": "vocab=300"})[0] + f" --out n {TINY}")
    at.good("thinwire train --run n --data raw.bin --steps 1 --eval-steps 0 --out o")
    ids = f"{TINY} --set data.tokenizer=ids --set model.vocab=300"
    at.good(f"thinwire run new k --data raw.bin --out k {ids}")
    said = at.bad("thinwire train --run k --data shards --steps 1 --out none")
    at.follow(said, "makes of it", "shards --tokenizer tok.json --out made --eos 7 --heldout 30%")
    at.good(f"thinwire run new l --data made --out l {TINY}")


@situation("words", "is not UTF-8: make it so, `iconv", "run `git lfs pull` in its folder",
           "was packed with a dictionary")
def other_files(at):
    """Texts that other programs make readable."""
    (at.folder / "latin").write_bytes("".join(f"Zeile {i} größer\n" for i in range(3000))
                                      .encode("latin-1"))
    said = at.bad("thinwire data prepare latin --text lines --out a")
    at.good(at.advice(said, "is not UTF-8", **{"IN >OUT": "latin >utf"})[0])
    at.good("thinwire data prepare utf --text lines --out b")
    at.stand_in("git", 'test "$*" = "lfs pull" && cp ../text big.txt')
    at.write("clone/big.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    said = at.bad("thinwire data prepare clone/big.txt --text lines --out c")
    at.good("cd clone && " + at.advice(said, "git lfs pull")[0])
    at.good("thinwire data prepare clone/big.txt --text lines --out d")
    if at.type("zstd --version").code:
        at.spare("was packed with a dictionary", "zstd is not installed")
        return
    at.type("mkdir parts && cd parts && split -l 20 ../text && zstd -q --train * -o ../dict")
    at.good("zstd -q -D dict text -o text.zst")
    said = at.bad("thinwire data prepare text.zst --text lines --out e")
    at.follow(said, "packed with a dictionary", "text.zst -o plain", DICTIONARY="dict")
    at.good("thinwire data prepare plain --text lines --out f")


# ---- models ----------------------------------------------------------------------------------

@situation("words", "continue with `thinwire train --from", "Its weights were chosen on this text",
           "only the trainer of this run knows its model", "holds no model (config.json and")
def models(at):
    """Training that was stopped, merged models, and a model that only its trainer knows."""
    at.manifest("r", ["train.tokens=100000000000"])
    said = at.type("timeout -s INT 2 thinwire train --run r --data text --steps 1000000 --out m")
    more = at.type("timeout -s INT 2 " + at.advice(said.text, "continue with")[0] + " --out m2")
    if "continue with" not in more.text or not (at.folder / "m2").exists():
        raise Wrong(str(more))
    said = at.good("thinwire merge m m2 --out both --weights greedy --data text")
    at.follow(said, "Its weights were chosen", "both --data text --windows 2")
    at.tensors("model.safetensors")
    at.good("thinwire run new t --tensors model.safetensors --out t --batch 16 "
            "--context 1024 --tokens 200m")
    said = at.bad("thinwire train --run t --data text --steps 1 --out none")
    at.advice(said, "only the trainer of this run")
    at.write("empty/nothing", "")
    at.advice(at.bad("thinwire import empty --out none"), "holds no model")


# ---- configuration ---------------------------------------------------------------------------

@situation("words", "there is no key `%s` in [%s]; `thinwire config example` lists",
           "; `thinwire init` writes one, --config names another",
           "`thinwire init` or `thinwire join` makes a node",
           "no node runs on %s, and none is configured here",
           "this is the manifest of a run, not the configuration",
           "`%s`: the node id after = is the 64 hex digits `thinwire init` printed")
def configuration(at):
    """No configuration, and keys of it that are not known."""
    said = at.bad("thinwire status --socket none.sock")
    at.env["HOME"] = str(at.folder)
    said = at.bad("thinwire config check")
    if "writes one" in said:
        at.follow(said, "writes one, --config names", f"--dir a --data text --run {at.manifest()}")
    at.follow(at.bad(f"thinwire --config ./{at.manifest('m')} status"), "this is the manifest",
              "--dir folder --run m")
    at.good("thinwire --config folder config check || [ $? = 4 ]")  # the folder names the node
    said = at.bad("thinwire status")
    at.advice(said, "no node runs on")
    at.follow(said, "makes a node", "--dir b")
    at.select("a")
    at.change("a", r"^\[node\]$", "[node]\nbananas = 4")
    said = at.bad("thinwire config check")
    if "threads" not in at.follow(said, "there is no key"):
        raise Wrong("config example has no keys")
    at.change("a", r"^bananas.*$", "")
    at.good("thinwire config check")
    made = at.good("thinwire init --dir c")
    at.change("a", r"^\[network\]$", "[network]\npeers = 127.0.0.1:1=abc")
    said = at.bad("thinwire config check")
    at.advice(said, "the node id after =")
    at.change("a", "^peers = .*$", f"peers = 127.0.0.1:1={made.split()[3]}")
    at.good("thinwire config check")


@situation("words", *(fragment for fragment in (
    "`thinwire config check` checks the file", "Sockets: thinwired.sock for `thinwire`",
    "Manifest of the run, identical on every node", "Training data: a text file, or the folder",
    "Size of the flight recorder", "Command that a shell runs on a checkpoint",
    "Most work, as time, that a power cut may cost", "Bytes of text that the model writes",
    "Device for the model: cpu, cuda", "A page about this node for a browser")))
def example(at):
    """The comments of the example name commands that there are."""
    said = at.good("thinwire config example")
    for message in list(at.seen):
        for command in at.advice(said, message.text):
            at.good(command + " --help")

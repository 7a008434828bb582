#!/usr/bin/env python3
# test_quality.py - smoke test of the quality bench: tiny models, real rounds, behaviour only.
"""Usage:
    test_quality.py BENCH REPORT      BENCH: thinwire-quality-bench, REPORT: report.py"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

# With a constant rate, averaging the nodes removes the noise of small batches.
SCALE = ("model=tiny nodes=4 steps=200 warmup=60 evals=2 data.heldout=0.2 train.lr=0.006 "
         "train.lr_final=1 train.batch=2")
BITS = {"int8": 8.0625, "int4": 4.25}  # per parameter, of the presets' codecs
SYNC = "sync.period=8 sync.outer_lr=1 sync.outer_momentum=0"
SHORT = f"one {SCALE} {SYNC} steps=20 warmup=5"
PLAN = f"""
default {SCALE} seed=1,2
alone      kind=alone
big        kind=big
default {SCALE} {SYNC} seed=1,2
diloco     preset=diloco
streaming  preset=streaming
default {SCALE} {SYNC}
exact      preset=streaming exact=yes sync.overlap=0 sync.mix=0
bf16       preset=streaming sync.codec=bf16 sync.result=bf16
slow       preset=streaming slow=1:1:1:20 sync.pace=clock sync.interval=0.4s
death      preset=streaming death=2@80+60
nonsense   preset=streaming hostile=nan:1
six        preset=streaming nodes=6
proposers    preset=streaming nodes=6 hostile=flip:1 hostile_owner=yes hostile_proposer=yes
struck     preset=streaming hostile=flip:2 hostile_owner=yes
btm        preset=btm
eager      preset=eager sync.overlap=1
keep       preset=eager sync.sent=keep sync.overlap=7
noloco     preset=noloco
beyond     preset=noloco gamma=3
sparse     preset=sparseloco sync.codec=ecsq1 sync.result=int8 sync.feedback=0.95
budget     preset=streaming sync.codec=auto sync.feedback=0.95 budget=4:3:3
"""


KINDS = f"""
default {SCALE} nodes=2 train.lr_final=0.1 train.batch=4 mix=equal,half,own
solo       sync.topology=solo
streaming  preset=streaming {SYNC}
fast       preset=streaming {SYNC} slow=1:4 sync.pace=clock sync.interval=0.4s
"""


def make_text(path, size, change=str):
    """Sentences of made-up words with the frequencies of real ones: Zipf 1949."""
    source = random.Random(1)
    onsets = ["b", "d", "f", "gr", "h", "k", "l", "m", "n", "pr", "s", "t", "v", ""]
    vowels = "aeiou"
    words = ["".join(source.choice(onsets) + source.choice(vowels)
                     for _ in range(1 + (i > 40) + (i > 400))) for i in range(3000)]
    parts, length = [], 0
    while length < size:
        sentence = " ".join(words[int(3000 ** source.random()) - 1]
                            for _ in range(4 + int(8 * source.random()))).capitalize() + ".\n"
        parts.append(sentence)
        length += len(sentence)
    path.write_text(change("".join(parts)))


class Smoke:
    def __init__(self, bench, report, folder):
        self.bench, self.report, self.folder = bench, report, folder
        make_text(folder / "text", 1 << 20)
        (folder / "plan").write_text(PLAN)

    def run(self, results, *options, texts=("text",), is_refused=False):
        named = [word for text in texts for word in ("--text", self.folder / text)]
        done = subprocess.run([self.bench, "--plan", self.folder / "plan", *named,
                               "--results", self.folder / results, *options],
                              capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == is_refused, done.stderr
        return done.stdout + done.stderr

    def cases(self, results):
        lines = (self.folder / results).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def losses(self):
        """Results of the first seed, by name."""
        return {case["name"]: case["anchor"] for case in self.cases("all") if case["seed"] == 1}

    def groups_beat_the_lone_node(self):
        loss = self.losses()
        for name in ("diloco", "streaming", "exact", "bf16", "death", "nonsense", "slow", "eager",
                     "keep", "noloco", "sparse", "budget", "btm"):
            assert loss[name] < loss["alone"], f"{name}: {loss[name]}, alone: {loss['alone']}"
        assert loss["big"] < loss["alone"]
        # Lying proposers can still commit empty rounds, but only their share of the rounds.
        assert loss["proposers"] < 1.05 * loss["six"], loss
        assert loss["six"] < 1.05 * loss["proposers"], loss
        own = {case["name"]: case["own"] for case in self.cases("all")}
        assert own["beyond"] > own["noloco"] + 0.3, "outside its bounds the consensus diverges"

    def coding_costs_little(self):
        loss = self.losses()
        assert abs(loss["streaming"] / loss["bf16"] - 1) < 0.02, loss
        assert abs(loss["streaming"] / loss["exact"] - 1) < 0.05, loss

    def bytes_are_those_of_the_codec(self):
        for case in self.cases("all"):
            bits = {"alone": 0, "big": 0, "exact": 32, "bf16": 16}
            bits = bits.get(case["name"], BITS.get(case["manifest"].get("sync.codec")))
            if case["name"] == "sparse":
                assert 0.5 < case["bits"] <= 1.5, case["bits"]
            elif case["name"] == "budget":  # 4, 3, 3 and 3, and nearly all of it
                assert 3.0 < case["bits"] <= 3.25, case["bits"]
            else:
                assert abs(case["bits"] - bits) < 0.01 * bits + 1e-9, (case["name"], case["bits"])
            if case["name"] == "bf16":
                # Of n elements in 4 parts a node sends 3 quarters, and 3 copies of its own part.
                times = case["rounds"] / int(case["manifest"]["sync.fragments"])
                payload = 2 * 2 * 4 * case["params"] * 3 / 4 * times
                sent = case["bytes"] - case["bytes_control"]
                assert payload < sent < 1.2 * payload, (payload, sent)
                assert case["bytes_control"] == 4 * 3 * 1500 * case["rounds"], case

    def who_parts_sends_until_then(self):
        rounds = {case["name"]: case["rounds"] for case in self.cases("all") if case["seed"] == 1}
        assert rounds["btm"] == rounds["diloco"] // 2, rounds

    def trouble_is_counted(self):
        for case in self.cases("all"):
            if case["name"] == "nonsense":
                assert case["refused"] >= case["rounds"]
            elif case["name"] in ("proposers", "struck"):  # false results, or whole rounds
                assert case["refused"] > 0
            elif case["name"] != "death":  # a returning node has cold moments, for the guard
                assert case["refused"] == 0, case["name"]
            assert (case["bytes_states"] > 0) == (case["name"] == "death"), case["name"]
            assert case["skipped"] == 0, case["name"]
            if case["name"] == "slow":
                # A slow step takes as long as 20 of the others: waiting would allow 10 rounds.
                assert case["rounds"] > 25, case["rounds"]

    def same_again_and_in_slices(self):
        """Cases with every kind of state stop within a round, go on, and end with the same bits."""
        lines = [line for line in PLAN.splitlines()[-17:]
                 if line.startswith(("default", "slow", "death", "struck", "btm", "eager", "keep",
                                     "noloco", "sparse", "budget"))]
        (self.folder / "plan").write_text("\n".join(lines))
        calls, states = 0, set()
        while " is stopped" in self.run("slices", "--steps", "333"):
            states.update(path.name for path in self.folder.glob("slices.*.state"))
            calls += 1
        (self.folder / "plan").write_text(PLAN)
        slices = (self.folder / "slices").read_text().splitlines()
        assert len(slices) == 9 and set(slices) < set(
            (self.folder / "all").read_text().splitlines()), slices
        assert len(states) == 9 and calls == 2 * 9, (calls, states)
        assert not list(self.folder.glob("slices.*.state"))

    def a_damaged_state_is_not_used(self):
        """The case begins anew, and so does a case whose state another build wrote."""
        for place in (0, 5000, -1):
            self.run("damaged", "--steps", "333", "--only", "bf16")
            (state,) = self.folder.glob("damaged.*.state")
            content = bytearray(state.read_bytes())
            content[place] ^= 1
            state.write_bytes(content)
            self.run("damaged", "--only", "bf16")
            assert self.cases("damaged")[0]["anchor"] == self.losses()["bf16"]
            (self.folder / "damaged").unlink()

    def a_cut_line_is_done_again(self):
        whole = (self.folder / "slices").read_bytes()
        (self.folder / "cut").write_bytes(whole[:-10])
        left = len(self.run("cut", "--list").splitlines())
        (self.folder / "cut").write_bytes(whole)
        assert len(self.run("cut", "--list").splitlines()) == left - 1

    def another_build_is_told_apart(self):
        lines = (self.folder / "slices").read_text()
        assert "another build" not in self.run("slices", "--list")
        program = self.cases("slices")[0]["program"]
        (self.folder / "foreign").write_text(lines.replace(program, "0" * len(program), 1))
        said = self.run("foreign", "--list")
        assert "foreign: 1 cases are of another build" in said, said

    def own_models_are_judged_apart(self):
        for case in self.cases("all"):
            has_own = case["name"] in ("btm", "noloco", "beyond")
            assert has_own or case["own"] is None, case["name"]
            if case["name"] in ("btm", "noloco"):
                assert 0 < case["own"] - case["anchor"] < 0.5, case

    def what_was_merged_is_dumped(self):
        folder = self.folder / "dumped"
        said = self.run("dump", "--only", "bf16", "--dump", folder, is_refused=True)
        assert f"{folder}/bf16-f00-r00000.f32: No such file" in said, said
        folder.mkdir()
        self.run("dump", "--only", "bf16", "--dump", folder)
        case = self.cases("dump")[0]
        deltas = sorted(folder.glob("bf16-f*-r*.f32"))
        assert len(deltas) == case["rounds"], (len(deltas), case["rounds"])
        assert all(any(delta.read_bytes()) for delta in deltas)
        fragments = {delta.name[:8]: delta.stat().st_size for delta in deltas}
        for name in ("phi", "u"):
            size = (folder / f"bf16-{name}.f32").stat().st_size
            assert size == sum(fragments.values()), (size, fragments)

    def nodes_keep_to_their_texts(self):
        make_text(self.folder / "north.txt", 1 << 18)
        make_text(self.folder / "south.txt", 1 << 18, str.upper)
        (self.folder / "plan").write_text(KINDS)
        said = self.run("none", is_refused=True)
        assert "mix = half wants several texts" in said, said
        self.run("kinds", texts=("north.txt", "south.txt"))
        cases = {(case["name"], case["mix"]): case for case in self.cases("kinds")}
        for case in cases.values():
            losses = case["by_text"]
            assert list(losses) == ["north", "south"], losses
            assert abs(sum(losses.values()) / 2 - case["anchor"]) < 1e-4, case
        # A model knows the text of its node better than the others' text, by the share of it.
        ahead = {mix: cases["solo", mix]["own"] - cases["solo", mix]["own_at_home"]
                 for mix in ("equal", "half", "own")}
        assert ahead["own"] > ahead["half"] + 1 and ahead["half"] > ahead["equal"] + 0.04, ahead
        assert abs(ahead["equal"]) < 0.03, ahead
        # Merging brings each text to the nodes that lack it.
        merged = cases["streaming", "own"]
        assert merged["anchor"] < cases["solo", "own"]["own"] - 1, cases
        # The clock's rounds weigh work by tokens, so the fast node's text is learnt better.
        fast = cases["fast", "own"]["by_text"], merged["by_text"]
        lead = [losses["south"] - losses["north"] for losses in fast]
        assert lead[0] > lead[1] + 0.5, fast
        told = self.report_of("kinds")
        assert "worst" in told and "at home" in told, told

    def threads_change_no_bit(self):
        for threads in (1, 2):
            (self.folder / "plan").write_text(f"{SHORT} threads={threads}\n")
            self.run(f"threads{threads}")
        assert self.cases("threads1") == self.cases("threads2")

    def bf16_is_another_case(self):
        (self.folder / "plan").write_text(f"{SHORT} compute=fp32,bf16\n")
        said = self.run("types", "--list")
        assert len(said.splitlines()) == 2, said
        with_bf16 = subprocess.run([self.bench, "--plan", self.folder / "plan", "--text",
                                    self.folder / "text", "--results", self.folder / "types"],
                                   capture_output=True, text=True, check=False)
        if with_bf16.returncode != 0:
            assert "has no bf16 products" in with_bf16.stderr, with_bf16.stderr
            return
        exact, rounded = self.cases("types")
        assert rounded["compute"] == "bf16" and "compute" not in exact
        assert 0 < abs(rounded["anchor"] - exact["anchor"]) < 0.1, (exact, rounded)

    def bad_plans_are_refused(self):
        for line, word in (("a sync.perod=3", "sync.period"), ("a nodes=0", "nodes"),
                           ("a death=9@1+1", "node 9"), ("a kind=none", "kind"),
                           ("a b", "key=value"), ("a seed=1\na seed=1", "twice"),
                           ("a hostile=flip", "flip:2"), ("a model=small", "200000 are wanted"),
                           ("a hostile_proposer=yes", "hostile_proposer wants"),
                           ("a nodes=4 unlinked=2", "unlinked pairs")):
            (self.folder / "plan").write_text(line + "\n")
            said = self.run("none", is_refused=True)
            assert word in said, f"{line}: {said}"
        assert not (self.folder / "none").exists()

    def report_of(self, results):
        return subprocess.run([sys.executable, self.report, self.folder / results],
                              capture_output=True, text=True, check=True).stdout

    def report_tells(self):
        done = subprocess.run([sys.executable, self.report, self.folder / "all", "--out",
                               self.folder / "pictures"], capture_output=True, text=True,
                              check=True)
        assert len(done.stdout.splitlines()) == 20, done.stdout
        for name in ("loss-tokens.svg", "loss-bytes.svg"):
            assert "streaming" in (self.folder / "pictures" / name).read_text()
        print(done.stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        smoke = Smoke(sys.argv[1], sys.argv[2], pathlib.Path(folder))
        smoke.run("all")
        smoke.report_tells()
        for fact in (smoke.groups_beat_the_lone_node, smoke.coding_costs_little,
                     smoke.bytes_are_those_of_the_codec, smoke.trouble_is_counted,
                     smoke.who_parts_sends_until_then,
                     smoke.same_again_and_in_slices, smoke.a_damaged_state_is_not_used,
                     smoke.a_cut_line_is_done_again,
                     smoke.another_build_is_told_apart, smoke.own_models_are_judged_apart,
                     smoke.what_was_merged_is_dumped, smoke.nodes_keep_to_their_texts,
                     smoke.threads_change_no_bit, smoke.bf16_is_another_case,
                     smoke.bad_plans_are_refused):
            fact()
            print("ok", fact.__name__)


if __name__ == "__main__":
    main()

"""demo_plan.py - how long a demo trains: measures the machine, chooses the run, and tells the time.

Nothing here judges a machine. Its speed decides how many steps of which size the nodes train; the
goals of demo_judge.py compare nodes that share the machine. Standard library only.
"""
import collections
import json
import math
import os
import selectors
import subprocess
import sys
import time

TARGET_S = 180      # of training
STEPS_MAX = 2000    # more add nothing to see
STEPS_WANTED = 1200 # a smaller step is chosen rather than fewer of them
STEPS_MIN = 600     # fewer hardly tell a group from a node alone: a slower machine takes longer
# Sequences of a step, the most first, and tokens of each. Small steps are noisy, and together the
# nodes average the noise away: at 2,048 tokens a step a node alone does as well for many steps.
BATCHES = (8, 4, 2, 1)
CONTEXT = 128
MEASURED_S = 6      # at least, and as long as each model needs for MEASURED_STEPS
MEASURED_STEPS = 3
MEASURING_S_MAX = 120

# A model of the family llama learns to spell within 300 steps; gpt2 takes five times as many. The
# inner rate is low, so that neither the group nor the solo node depends on luck; the outer momentum
# makes up for it. Five fragments keep a merge short on a slow link. Periods are those of runs of
# PERIODS_STEPS steps and more.
MODEL = {"model.family": "llama", "train.lr": "0.002",
         "train.optimizer": "adamw"} # all of it was fitted with this; Muon is dear in small steps
PRESETS = {  # override the preset's row, which is fitted to the length of the run
    "streaming": {"sync.period": 40, "sync.fragments": 5, "sync.outer_lr": 1,
                  "sync.outer_momentum": 0.7, "sync.sent": "mix", "sync.mix": 0.5},
    "diloco": {"sync.period": 40, "sync.outer_lr": 1, "sync.outer_momentum": 0.7},
    "eager": {"sync.period": 20, "sync.overlap": 19, "sync.codec": "int4", "sync.result": "int4"},
    "noloco": {"sync.period": 27, "sync.codec": "ecsq2"},
    "co2": {"sync.period": 20, "sync.overlap": 19, "sync.codec": "int4", "sync.result": "int4"},
    "decoupled": {"sync.period": 30},
    "sparseloco": {},
    "local-sgd": {"sync.period": 20, "sync.codec": "int4", "sync.result": "int4"},
    "btm": {},
}
PERIODS_STEPS = 1200 # a shorter run merges more often, so that it has as many outer steps as this
PERIOD_MIN = 5

Length = collections.namedtuple("Length", "steps batch context seconds")
MEASURED = Length(STEPS_WANTED, 1, CONTEXT, 0)  # the run whose speed is measured


def choose(tokens_per_s, trainers, steps=None, batches=BATCHES, context=CONTEXT):
    """The length of a run that this machine trains in about TARGET_S. `tokens_per_s` is the speed
    of all models together; `steps` are those that the user asked for, or None."""
    def count(batch):
        return tokens_per_s * TARGET_S / (trainers * batch * context)

    wanted = steps or STEPS_WANTED
    batch = next((batch for batch in batches if count(batch) >= wanted), batches[-1])
    if steps is None:
        steps = min(STEPS_MAX, max(STEPS_MIN, int(count(batch) / 10) * 10))
    return Length(steps, batch, context, trainers * steps * batch * context / tokens_per_s)


def settings(preset, length):
    """The keys of a manifest for this length, as texts."""
    chosen = dict(PRESETS[preset])
    if "sync.period" in chosen:
        share, parts = min(1.0, length.steps / PERIODS_STEPS), chosen.get("sync.fragments", 1)
        whole = round(chosen["sync.period"] * share / parts) * parts # every fragment once a period
        chosen["sync.period"] = max(PERIOD_MIN, whole)
    if "sync.overlap" in chosen:
        chosen["sync.overlap"] = chosen["sync.period"] - 1
    chosen.update({"train.batch": length.batch, "model.context": length.context, **MODEL})
    return {key: str(value) for key, value in chosen.items()}


def duration(seconds):
    """About how long: "40 s", "3 minutes"."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5)):.0f} s"
    return f"{round(seconds / 60)} minutes"


def sentence(length, tokens_per_s, trainers, asked):
    """One sentence about a choice, for people."""
    chosen = "as asked, " if asked else ""
    return (f"This machine trains {trainers} nodes at {tokens_per_s:,.0f} tokens/s: {chosen}"
            f"{length.steps} steps of {length.batch * length.context:,} tokens, about"
            f" {duration(length.seconds)}")


class Meter:
    """The steps of one `thinwire train --json`, with the time at which each was read."""

    def __init__(self, process):
        self.process, self.rest, self.seen = process, b"", []

    def read(self):
        """Takes the lines that the process has printed; False once it has ended."""
        piece = os.read(self.process.stdout.fileno(), 65536)
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event.get("event") == "step":
                self.seen.append((time.monotonic(), event["tokens"]))
        return piece != b""

    def rate(self):
        """Tokens/s since the first step, which prepares the products; None before the second."""
        if len(self.seen) < 2:
            return None
        (begin_s, before), (end_s, after) = self.seen[0], self.seen[-1]
        return (after - before) / max(end_s - begin_s, 1e-6)


def measure(command, count):
    """Runs `count` times `command + [NUMBER]` at once, as the demo will run its nodes, and returns
    the tokens/s of all together."""
    meters, begin_s = [], time.monotonic()
    with selectors.DefaultSelector() as ready:
        try:
            for i in range(count):
                meters.append(Meter(subprocess.Popen(
                    [str(word) for word in command(i)], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, start_new_session=True)))
                ready.register(meters[-1].process.stdout, selectors.EVENT_READ, meters[-1])
            while not is_measured(meters, time.monotonic() - begin_s):
                for key, _ in ready.select(timeout=0.5):
                    if not key.data.read():
                        error = key.data.process.stderr.read().decode(errors="replace")
                        sys.exit(f"demo: the model does not train here:\n{error}")
        finally:
            for meter in meters:
                meter.process.kill()
            for meter in meters:
                meter.process.communicate()
    rates = [meter.rate() for meter in meters if meter.rate() is not None]
    if not rates:
        sys.exit(f"demo: no model made two steps within {MEASURING_S_MAX} s")
    return sum(rates) * count / len(rates)


def is_measured(meters, took_s):
    """Whether every model has trained long enough, or the time is over."""
    return took_s > MEASURING_S_MAX or all(
        len(m.seen) > MEASURED_STEPS and m.seen[-1][0] - m.seen[0][0] >= MEASURED_S
        for m in meters)


class TimeLeft:
    """Estimates the time left from the steps of the last minute: of the group and of the solo node,
    and the later end counts. The group ends by the clock of its run, which counts merged steps, so
    it is behind at first and moves in jumps."""
    WINDOW_S = 60

    def __init__(self, planned_s):
        self.planned_s = planned_s
        self.seen = collections.deque()  # (seconds, share of its steps that each part has made)

    def update(self, now_s, done, made):
        """Shares from 0 to 1 that are done by the clock, and made as steps. Returns the seconds
        left."""
        self.seen.append((now_s, made))
        while len(self.seen) > 2 and now_s - self.seen[1][0] >= self.WINDOW_S:
            self.seen.popleft()
        begin_s, before = self.seen[0]
        took_s = now_s - begin_s
        left_s = [self.planned_s * (1 - share) if new - old < 0.02 and took_s < self.WINDOW_S
                  else math.inf if new <= old
                  else (1 - share) * took_s / (new - old)
                  for share, new, old in zip(done, made, before) if share < 1]
        return max(left_s, default=0.0)

#!/usr/bin/env python3
# test_demo.py - the parts of deploy/demo.py that start no node: the chooser, the judge, the time
# left, and the state machine of the node that is killed.
#   test_demo.py SOURCE
import copy
import math
import sys
import tempfile
import types
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(sys.argv[1]) / "deploy"))
import demo  # pylint: disable=wrong-import-position
import demo_judge
import demo_plan

failures = 0


def check(holds, sentence):
    global failures
    print(f"{'ok  ' if holds else 'FAIL'} {sentence}")
    failures += not holds


# ---- the chooser --------------------------------------------------------------------------------

def a_machine_of_any_speed_gets_a_run():
    for tokens_per_s in (50, 400, 1900, 5000, 22000, 90000, 1e7):
        length = demo_plan.choose(tokens_per_s, 5)
        check(demo_plan.STEPS_MIN <= length.steps <= demo_plan.STEPS_MAX
              and length.batch in demo_plan.BATCHES, f"{tokens_per_s} tokens/s: {length}")
        if demo_plan.STEPS_MIN < length.steps < demo_plan.STEPS_MAX:
            check(0.9 * demo_plan.TARGET_S < length.seconds <= demo_plan.TARGET_S,
                  f"{tokens_per_s} tokens/s: three minutes")
    slow, fast = demo_plan.choose(300, 5), demo_plan.choose(60000, 5)
    check(slow.batch == min(demo_plan.BATCHES) and slow.seconds > demo_plan.TARGET_S,
          "a very slow machine takes the smallest step, and longer")
    check(fast.batch > slow.batch, "a fast machine takes larger steps")
    asked = demo_plan.choose(1900, 5, 1000)
    check(asked.steps == 1000, "steps that the user asks for are not changed")
    own = demo_plan.choose(1900, 5, None, [16], 64)
    check((own.batch, own.context) == (16, 64), "nor is a step that the user asks for")


def a_short_run_merges_as_often_as_a_long_one():
    for preset in demo_plan.PRESETS:
        for steps in range(demo_plan.STEPS_MIN, demo_plan.STEPS_MAX + 1, 10):
            keys = demo_plan.settings(preset, demo_plan.Length(steps, 2, 128, 180))
            if "sync.period" not in keys:
                continue # of the preset, which fits it to the run
            period = int(keys["sync.period"])
            is_good = period >= demo_plan.PERIOD_MIN and steps / period >= 26 and \
                period % int(keys.get("sync.fragments", 1)) == 0 and \
                int(keys.get("sync.overlap", period - 1)) == period - 1
            if steps in (600, 610, 2000) or not is_good:
                check(is_good, f"{preset}, {steps} steps: {keys}")


def the_sentence_names_speed_and_length():
    length = demo_plan.Length(400, 2, 128, 178)
    said = demo_plan.sentence(length, 1900.4, 5, False)
    check(said == "This machine trains 5 nodes at 1,900 tokens/s: 400 steps of 256 tokens,"
          " about 3 minutes", said)


# ---- the time left ------------------------------------------------------------------------------

def the_time_left_follows_the_speed():
    left = demo_plan.TimeLeft(180)
    def update(now_s, *shares):
        return left.update(now_s, shares, shares)

    check(update(0, 0.0, 0.0) == 180, "before the first step it is the plan's")
    for now_s in range(1, 61):
        seen = update(now_s, now_s / 200, now_s / 240)
    check(abs(seen - 180) < 1, "the later end counts")
    for now_s in range(61, 200):
        seen = update(now_s, 0.3 + (now_s - 60) / 1000, 0.25 + (now_s - 60) / 1000)
    check(abs(seen - 610) < 5, "a machine that became slower is noticed within a minute or two")
    for now_s in range(200, 270):
        seen = update(now_s, 0.44, 0.39)
    check(math.isinf(seen), "nothing moves: there is no end")
    check(demo.words_left(seen) == "nothing moves" and demo.words_left(0) == "done", "its words")
    check(update(300, 1.0, 1.0) == 0, "the end")
    for now_s in range(301, 370):
        seen = left.update(now_s, (0.02, 1.0), ((now_s - 300) / 400, 1.0))
    check(abs(seen - 392) < 5, "a clock that has only begun to move says nothing about the speed")


# ---- the judge ----------------------------------------------------------------------------------

def steps_of(rate, end_s):
    return [(float(t), min(int(rate * t), int(rate * end_s)), 0) for t in range(end_s + 20)]


def good_facts(speed=1.0):
    """Facts of a demo that went well, on a machine of this speed."""
    end_s = int(200 / speed)
    node = {"live_nats": 1.90, "anchor_nats": 1.90, "start_nats": 5.54, "steps": 400,
            "pace": demo_judge.pace(steps_of(2 * speed, end_s), steps_of(2.05 * speed, end_s))}
    return {
        "preset": "streaming", "period": 27, "merged_nats": None, "steps": 400,
        "nodes": [dict(node, name=f"node{i}") for i in range(1, 5)],
        "solo": {"live_nats": 1.99, "name": "solo"},
        "anchor_distance_max": 0.0, "bytes_ratio": 130.0, "data_copies": 3, "data_bytes": 4.5e6,
        "is_finished": True,
        "churn": {"victim": "node4", "others_steps": {"node1": 9, "node2": 8, "node3": 9},
                  "solo_steps": 9, "rounds_meanwhile": 1, "rounds_waited": 2,
                  "rounds_allowed": demo_judge.rounds_allowed(2 / speed, 3e6, 625e3)},
    }


def failed(facts):
    return [row["name"] for row in demo_judge.judge(facts) if not row["ok"]]


def a_healthy_run_passes_at_any_speed():
    for speed in (0.02, 0.1, 1.0, 10.0):
        check(failed(good_facts(speed)) == [], f"a machine {speed} times as fast passes")
    facts = good_facts()
    for node in facts["nodes"]:
        node["utilisation"] = 0.5
    facts["churn"].update(others_steps={"node1": 8, "node2": 9, "node3": 10}, solo_steps=21)
    check(failed(facts) == [], "a machine that is busy otherwise passes")


def every_fault_is_found():
    def broken(sentence, change, word):
        facts = copy.deepcopy(good_facts())
        change(facts)
        names = failed(facts)
        check(len(names) > 0 and any(word in name for name in names), f"{sentence}: {names}")

    broken("an anchor that learnt nothing",
           lambda f: [n.update(anchor_nats=3.6, live_nats=3.6) for n in f["nodes"]], "at the start")
    broken("a group no better than the solo node",
           lambda f: [n.update(anchor_nats=1.985) for n in f["nodes"]], "solo")
    broken("one node that drifted", lambda f: f["nodes"][2].update(live_nats=1.95), "of each other")
    broken("anchors that differ in a bit", lambda f: f.update(anchor_distance_max=1e-9), "anchor")
    broken("a node without an anchor", lambda f: f["nodes"][0].update(anchor_nats=None), "solo")
    broken("bytes of another codec", lambda f: f.update(bytes_ratio=50.0), "bytes")
    broken("links that are cut", lambda f: f.update(bytes_ratio=None), "bytes")
    broken("a copy of the data that differs", lambda f: f.update(data_copies=2), "data")
    broken("nodes that wait for the network", lambda f: f["nodes"][1].update(pace=0.4), "pace")
    broken("a node that never trained", lambda f: f["nodes"][0].update(pace=None), "pace")
    broken("a group that stood still with its victim",
           lambda f: f["churn"]["others_steps"].update(node1=0), "trained on")
    broken("a group that no longer merges without it",
           lambda f: f["churn"].update(rounds_meanwhile=0), "trained on")
    broken("a victim that never merged again",
           lambda f: f["churn"].pop("rounds_waited"), "came back")
    broken("a victim that merged late",
           lambda f: f["churn"].update(rounds_waited=40), "came back")
    broken("a victim that was never started again",
           lambda f: f.update(churn={"victim": "node4"}), "came back")
    broken("a run that was not finished", lambda f: f.update(is_finished=False), "finished")


def the_pace_is_of_the_time_in_which_both_train():
    slow, fast = steps_of(1, 300), steps_of(2, 100)
    check(abs(demo_judge.pace(slow, fast) - 0.5) < 0.02, "a slow node")
    check(abs(demo_judge.pace(fast, slow) - 2.0) < 0.05, "a fast node")
    late = [(t + 50, steps, 0) for t, steps, _ in steps_of(2, 100)]
    check(abs(demo_judge.pace(late, fast) - 1.0) < 0.05, "a node that started late")
    check(demo_judge.pace([(1.0, 0, 0)], fast) is None, "a node without a step")


# ---- the node that is killed --------------------------------------------------------------------

class Puppet:
    """A node whose steps and rounds the test sets."""

    def __init__(self, name):
        self.name, self.id, self.received = name, name, 0
        self.last_step, self.calls, self.status = 10, [], self.say("member", 5)

    @staticmethod
    def say(state, rounds):
        return {"state": state, "sync": {"rounds_committed": rounds}}

    def kill(self):
        self.calls.append("kill")
        self.status = None

    def start(self):
        self.calls.append("start")


def the_victim_returns_when_the_others_have_trained_on():
    victim, solo = Puppet("node4"), Puppet("solo")
    others = [Puppet("node1"), Puppet("node2")]
    churn = demo.Churn(victim, others, solo, 625e3, False)
    churn.mixed_round = types.MethodType(lambda self: self.merged, churn)
    churn.merged = None
    churn.step(10, 0.2)
    check(victim.calls == [], "not killed at the start")
    churn.step(100, 0.36)
    check(victim.calls == ["kill"], "killed midway")
    churn.step(500, 0.37)
    check(victim.calls == ["kill"], "a slow machine has time: the others have made no step yet")
    for node in others + [solo]:
        node.last_step += 4
    churn.step(501, 0.38)
    check(victim.calls == ["kill"], "nor have they merged")
    for node in others:
        node.status = node.say("member", 7)
    churn.step(502, 0.39)
    check(victim.calls == ["kill", "start"], "then it is started again")
    check(churn.facts["others_steps"] == {"node1": 4, "node2": 4}
          and churn.facts["solo_steps"] == 4, "the steps meanwhile are counted")
    check(churn.facts["rounds_meanwhile"] == 2, "and the merges")
    churn.step(600, 0.4)
    check("returned_at_s" not in churn.facts, "its return is its first answer")
    victim.status = victim.say("receiver", 0)
    churn.step(700, 0.41)
    churn.step(710, 0.42)
    victim.status, churn.merged = victim.say("member", 0), 9
    churn.step(720, 0.43)
    check(churn.facts["rounds_waited"] == 2 and churn.state == "over", "rounds since its return")


def a_group_that_stops_with_its_victim_gets_it_back():
    victim, solo, other = Puppet("node4"), Puppet("solo"), Puppet("node1")
    churn = demo.Churn(victim, [other], solo, 625e3, False)
    churn.step(100, 0.36)
    solo.last_step += 30
    churn.step(200, 0.61)
    check(victim.calls == ["kill", "start"], "the demo goes on")
    check(churn.facts["others_steps"]["node1"] == 0, "and the judge sees it")


def the_loss_at_the_start_is_read_from_the_log():
    with tempfile.TemporaryDirectory() as folder:
        node = demo.Node("node1", Path(folder), Path(folder))
        check(node.start_nats() is None, "without a log it is not known")
        (Path(folder) / "node1.log").write_text(
            "ts=1 level=info ev=evaluated step=0 loss_live=5.5416 loss_anchor=5.5416\n"
            "ts=2 level=info ev=evaluated step=18 loss_live=4.0124 loss_anchor=5.5416\n")
        node.losses = {18: {"live_nats": 4.0124}} # no poll saw the first one
        check(node.start_nats() == 5.5416, "a measurement that no poll saw counts")


for test in (a_machine_of_any_speed_gets_a_run, a_short_run_merges_as_often_as_a_long_one,
             the_sentence_names_speed_and_length, the_time_left_follows_the_speed,
             the_loss_at_the_start_is_read_from_the_log, a_healthy_run_passes_at_any_speed,
             every_fault_is_found,
             the_pace_is_of_the_time_in_which_both_train,
             the_victim_returns_when_the_others_have_trained_on,
             a_group_that_stops_with_its_victim_gets_it_back):
    test()
sys.exit(1 if failures else 0)

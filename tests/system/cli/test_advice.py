"""test_advice.py - advice is run: the command that a message names is typed, in the situation
that prints it, as the user who sees it; afterwards the situation is gone.

    python3 test_advice.py BIN list     every message is run by a situation or listed as unseen
    python3 test_advice.py BIN PART [NAME]   the situations of that part, or one of them

The table of situations is in advice_*.py. advice_unseen.txt has the messages without one: it may
only become shorter.
"""
import concurrent.futures
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback

import advice
import advice_faults
import advice_nodes
import advice_words

UNSEEN = pathlib.Path(__file__).with_name("advice_unseen.txt")
UNSEEN_MAX = 19  # lower it with each message that leaves the list
AT_ONCE = {"words": 3}


def unseen(found):
    """The list of messages that no situation runs; each line is `beginning | reason`."""
    chosen, wrong = [], []
    for line in UNSEEN.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        begin, _, reason = line.partition(" | ")
        named, bad = advice.resolve(found, [begin])
        wrong += [f"{UNSEEN.name}: {one}" for one in bad]
        if len(reason) < 10:
            wrong.append(f"{UNSEEN.name}: `{begin}` has no reason")
        chosen += named
    return chosen, wrong


def followed_elsewhere():
    """Beginnings of the messages whose command another test types: `follow 'BEGIN'` in it."""
    return [begin for path in (advice.ROOT / "tests").rglob("*.sh") for begin in
            re.findall(r"^(?:# )?follow '([^']+)'", path.read_text(encoding="utf-8"), re.M)]


def check_list(bin_dir):
    """Every message has a situation or a reason, and every named command exists."""
    found = advice.messages()
    listed, wrong = unseen(found)
    wrong += advice.check_commands(bin_dir)
    run = []
    situations = [*advice.SITUATIONS, ("", followed_elsewhere(), followed_elsewhere)]
    for _, fragments, function in situations:
        chosen, bad = advice.resolve(found, fragments)
        wrong += [f"{function.__name__}: {one}" for one in bad]
        run += chosen
    wrong += [f"neither run nor listed: {one}" for one in found
              if one not in run and one not in listed]
    wrong += [f"run, so no longer unseen: {one}" for one in listed if one in run]
    if len(listed) > UNSEEN_MAX:
        wrong.append(f"{len(listed)} unseen, {UNSEEN_MAX} at most: run a new message instead")
    print(f"{len(set(run))} of {len(found)} messages run in {len(advice.SITUATIONS)} situations, "
          f"{len(listed)} unseen")
    return wrong


def try_one(bin_dir, fragments, function):
    """One situation in a folder of its own; returns the fault."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-advice-", dir="/tmp"))
    begin = time.monotonic()
    seen, wrong = advice.resolve(advice.messages(), fragments)
    at = advice.Place(bin_dir, folder, seen)
    try:
        function(at)
        wrong += [f"not followed: {one}" for one in at.left]
    except advice.Wrong as why:
        wrong.append(str(why))
    except Exception:  # pylint: disable=broad-except
        wrong.append(traceback.format_exc())
    finally:
        at.end()
        shutil.rmtree(folder, ignore_errors=True)
    took_s = time.monotonic() - begin
    print(f"{'WRONG' if wrong else 'good'} {function.__name__} {len(seen)} messages {took_s:.1f} s")
    return [f"{function.__name__}: {one}" for one in wrong]


def main():
    """One part."""
    bin_dir, part, name = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    table = [one for one in advice.SITUATIONS if one[0] == part and name in (None, one[2].__name__)]
    if part == "list":
        wrong = check_list(bin_dir)
    else:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE.get(part, 4)) as pool:
            jobs = [pool.submit(try_one, bin_dir, fragments, function)
                    for _, fragments, function in table]
            wrong = [line for job in jobs for line in job.result()]
    print("\n".join(f"WRONG {line}" for line in wrong) or "all advice helped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

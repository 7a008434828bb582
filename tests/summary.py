"""summary.py - results of a CTest run: failed tests with their output, skipped ones with why.

    summary.py PRESET JUNIT.xml SECONDS RESULTS [AGAIN.xml]
        appends a line `pass|fail|skip NAME` per test to RESULTS, which tests/run counts. AGAIN has
        the failed tests once more, run alone: a test that passed there counts as passed, has a
        further line `flaky NAME`, and the output of its failure is shown all the same.
    summary.py --failed JUNIT.xml
        the failed tests as a pattern for `ctest -R`; nothing where there are none, or more than
        AGAIN_AT_MOST: so many do not fail because the machine is busy.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

OUTPUT_LINES = 60
AGAIN_AT_MOST = 4


def reason(output):
    """The line of a skipped test that says why."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if "skip" in line.lower()] or lines[-1:] or ["no reason given"]
    return said[0]


def cases_of(junit):
    """The test cases of a file; none where there is no such file, or half of one."""
    try:
        return list(xml.etree.ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return []


def outcome_of(case):
    """pass, fail or skip."""
    skipped = case.find("skipped")
    if skipped is not None and "SKIP" in skipped.get("message", ""):
        return "skip"
    return "pass" if case.get("status") == "run" and case.find("failure") is None else "fail"


def show_failed(preset, case, is_mended):
    """Prints why the test failed, and the end of its output."""
    failure = case.find("failure")
    why = (failure.get("message") if failure is not None else "") or case.get("status")
    verdict = "FAILED AT FIRST, passed when run again alone:" if is_mended else "FAILED"
    print(f"\n{verdict} {preset}/{case.get('name')}: {why}")
    output = case.findtext("system-out") or ""
    print("\n".join("    " + line for line in output.splitlines()[-OUTPUT_LINES:]), "\n")


def summarize(preset, junit, seconds, results, again=None):
    """Prints the results, and appends them to the file `results`."""
    mended = {case.get("name") for case in cases_of(again) if outcome_of(case) == "pass"}
    found = []
    for case in cases_of(junit):
        name, outcome = case.get("name"), outcome_of(case)
        if outcome == "skip":
            print(f"skipped {preset}/{name}: {reason(case.findtext('system-out') or '')}")
        elif outcome == "fail":
            show_failed(preset, case, name in mended)
            outcome = "pass" if name in mended else "fail"
        found.append((outcome, name))
    found += [("flaky", name) for name in sorted(mended)]
    if not found:
        print(f"FAILED {preset}: no tests ran, see {pathlib.Path(junit).parent}/test.log")
        found.append(("fail", "ctest"))
    with open(results, "a", encoding="utf-8") as file:
        file.writelines(f"{outcome} {preset}/{name}\n" for outcome, name in found)
    count = {key: sum(outcome == key for outcome, _ in found)
             for key in ("pass", "fail", "skip", "flaky")}
    second = f", {count['flaky']} of them at the second try" if count["flaky"] else ""
    print(f"== {preset}: {count['pass']} passed{second}, {count['fail']} failed, "
          f"{count['skip']} skipped in {seconds} s")


def pattern_of_failed(junit):
    """For `ctest -R`; "" where no test is to be run again."""
    failed = [case.get("name") for case in cases_of(junit) if outcome_of(case) == "fail"]
    if not 0 < len(failed) <= AGAIN_AT_MOST:
        return ""
    return f"^({'|'.join(re.escape(name) for name in failed)})$"


if sys.argv[1] == "--failed":
    print(pattern_of_failed(sys.argv[2]))
else:
    summarize(*sys.argv[1:])

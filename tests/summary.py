"""summary.py - what a CTest run came to: failed tests with their output, skipped ones with why.

python3 tests/summary.py PRESET JUNIT.xml SECONDS RESULTS: appends a line `pass|fail|skip NAME` per
test to RESULTS, which tests/run counts.
"""
import pathlib
import sys
import xml.etree.ElementTree

OUTPUT_LINES = 60


def reason(output):
    """The line of a skipped test that says why."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if "skip" in line.lower()] or lines[-1:] or ["no reason given"]
    return said[0]


def main():
    preset, junit, seconds, results = sys.argv[1:5]
    try:
        cases = list(xml.etree.ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        cases = []
    found = []
    for case in cases:
        name, output = case.get("name"), case.findtext("system-out") or ""
        status = case.get("status")
        if case.find("skipped") is not None and "SKIP" in case.find("skipped").get("message", ""):
            found.append(("skip", name))
            print(f"skipped {preset}/{name}: {reason(output)}")
        elif status == "run" and case.find("failure") is None:
            found.append(("pass", name))
        else:
            found.append(("fail", name))
            failure = case.find("failure")
            why = failure.get("message") if failure is not None else status
            print(f"\nFAILED {preset}/{name}: {why or status}")
            print("\n".join("    " + line for line in output.splitlines()[-OUTPUT_LINES:]), "\n")
    if not found:
        print(f"FAILED {preset}: no tests ran, see {pathlib.Path(junit).parent}/test.log")
        found.append(("fail", "ctest"))
    with open(results, "a", encoding="utf-8") as file:
        file.writelines(f"{outcome} {preset}/{name}\n" for outcome, name in found)
    counts = {key: sum(outcome == key for outcome, _ in found) for key in ("pass", "fail", "skip")}
    print(f"== {preset}: {counts['pass']} passed, {counts['fail']} failed, "
          f"{counts['skip']} skipped in {seconds} s")


main()

"""targets.py - the programs that chosen tests run, as targets of the build.

    targets.py PRESET CTEST-ARGUMENTS...
        prints every file below build/PRESET that the command or the environment of a chosen test
        names, relative to that folder. A test that is given the folder of all programs needs those
        of Thinwire, and those that play a node or its worker. Fails if no test is chosen, with the
        nearest names.
"""
import difflib
import json
import pathlib
import re
import subprocess
import sys

PROGRAMS = ["bin/thinwired", "bin/thinwire", "bin/thinwire-worker", "bin/thinwire-engine",
            "bin/stub_worker", "bin/old_peer", "bin/api_server"]


def chosen(preset, arguments):
    """Names of the tests that CTest would run."""
    text = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1", *arguments],
                          check=True, capture_output=True, text=True).stdout
    return [test["name"] for test in json.loads(text[text.index("{"):])["tests"]]


def texts_of_tests(folder):
    """Command and properties of each test, as CMake wrote them. CTest itself does not tell the
    command of a test whose program is not built yet."""
    texts = {}
    for file in folder.rglob("CTestTestfile.cmake"):
        for line in file.read_text(encoding="utf-8").splitlines():
            found = re.match(r"(?:add_test|set_tests_properties)\((?:\[=+\[)?([^\s\]]+)", line)
            if found:
                texts[found[1]] = texts.get(found[1], "") + line + "\n"
    return texts


def main():
    """Prints the targets in one line."""
    preset, arguments = sys.argv[1], sys.argv[2:]
    folder = pathlib.Path("build", preset).resolve()
    texts = texts_of_tests(folder)
    tests = chosen(preset, arguments)
    if not tests:
        near = difflib.get_close_matches(arguments[-1], texts, 3, 0.5)
        sys.exit(f"run: no test matches {arguments[-1]}" +
                 (f"; near: {', '.join(near)}" if near else "; `ctest --preset ci -N` lists them"))
    known = set(re.findall(r"(?m)^([^\s:]+): ", subprocess.run(
        ["ninja", "-C", str(folder), "-t", "targets", "all"],
        check=True, capture_output=True, text=True).stdout))
    found = set()
    for test in tests:
        for name in re.findall(rf'{re.escape(str(folder))}/?([^\s:;,"]*)', texts.get(test, "")):
            name = name.rstrip("/")
            if name in ("", "bin", "lib"):
                found.update(PROGRAMS)
            elif name in known:
                found.add(name)
            else: # a folder of files that the build makes
                found.update(file for file in known if file.startswith(name + "/"))
    print(*sorted(found))


if __name__ == "__main__":
    main()

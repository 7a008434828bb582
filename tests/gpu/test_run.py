#!/usr/bin/env python3
# test_run.py - tests/gpu/run with a card that is made of scripts: every part, its rows and JSON.
"""No minute on a real card is to be lost by the script itself: this takes all of its branches with
programs that answer at once.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

SERVE = r'''#!/bin/bash
# Says what it is, then for each number of steps: seconds of one, CPU seconds, loss.
case " $* " in *" --serve "*) ;; *) echo done; exit 0 ;; esac
echo '{"what": "fake", "tokens": 32768, "flops": 2.6e13, "peak": 7.9e14}'
seconds=0.25
case " $* " in *"layers 2 "*) seconds=0.15 ;; esac
while read -r _; do echo "$seconds 0.20 4.500000"; done
'''
PROGRAMS = {
    "thinwire-engine": r'''#!/bin/bash
echo '{"devices": [{"device": "cuda:0", "model": "Fake", "memory_bytes": 150000000000, "x": 1}]}'
''',
    "thinwire-engine-bench": SERVE,
    "thinwire-round-bench": r'''#!/bin/bash
echo '{"overhead": 0.01, "period": 30, "step_s": 0.07, "encode_s": 0.01,' \
    '"apply_s": 0.02, "digests_s": 0.001}'
''',
    "thinwire-gemm-bench": "#!/bin/bash\necho '{" + ", ".join(
        f'"{what}_s": 1e-4, "{what}_apart_s": 2e-4'
        for what in ("bias", "bias_gelu", "gelu_backward", "bias_gradient")) + "}'\n",
    "test_good": "#!/bin/bash\necho '3 passed, 0 failed'\n",
    "test_bad": "#!/bin/bash\necho '[  ERROR   ] --- off by 3 \"quoted\"'; exit 1\n",
    "test_gpu_engine": "#!/bin/bash\necho '9 passed, 0 failed'\n",
    "test_none": "#!/bin/bash\necho 'no device'; exit 77\n",
}
PYTHON = r'''#!/bin/bash
case "$*" in
    *purelib*) echo /nowhere ;;
    -c*) exit 0 ;;
    *torch_step*) exec "$FAKE/bin/thinwire-engine-bench" --serve "$@" ;;
    *ceilings*) echo "copy 3 TB/s"; echo "square 700 TFLOP/s" ;;
    *fold_profile*) exec "$REAL_PYTHON" "$@" ;;
    *) cat >/dev/null ;;
esac
'''
NCU = r'''#!/bin/bash
while [ "$1" != --log-file ]; do shift; done
{
    echo '==PROF== connected'
    echo '"ID","Kernel Name","gpu__time_duration.sum"'
    echo '"","","ns"'
    for step in 1 2 3; do
        echo '"1","void cross_entropy<tw_bf16>(int)","2,000,000"'
        echo '"2","decide(int)","1,000"'
    done
} >"$2"
'''
SANITIZER = r'''#!/bin/bash
shift 4  # --tool T --error-exitcode N
exec "$@"
'''
LLMC = r'''#!/bin/bash
for i in $(seq 1 30); do
    echo "step $i/30 | loss 11.0 (+nanz)| norm 1.0 (+nanz)| lr 0.0 | 70.50 ms | 40.0% bf16 MFU |"
done
'''


def make(path, text):
    path.write_text(text)
    path.chmod(0o755)


def fake_card(folder, tests):
    (folder / "bin").mkdir(parents=True)
    (folder / "tools").mkdir()
    for name, text in PROGRAMS.items():
        make(folder / "bin" / name, text)
    for name, text in (("python3", PYTHON), ("ncu", NCU), ("compute-sanitizer", SANITIZER),
                       ("nvidia-smi", "#!/bin/bash\necho 580.1\n")):
        make(folder / "tools" / name, text)
    make(folder / "llmc", LLMC)
    make(folder / "node", PROGRAMS["test_good"])
    (folder / "tests").write_text("".join(f"{name} both x.c\n" for name in tests))


def run(folder, *options):
    environment = dict(os.environ, PATH=f"{folder}/tools:{os.environ['PATH']}", FAKE=str(folder),
                       REAL_PYTHON=sys.executable)
    return subprocess.Popen([ROOT / "tests/gpu/run", "--built", "--build", folder, *options],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=environment)


def result_of(folder, process):
    output = process.communicate(timeout=120)[0]
    try:
        report = json.loads((folder / "gpu.json").read_text())
    except ValueError as error:
        sys.exit(f"{output}\n{(folder / 'gpu.json').read_text()}\nFAILED: {error}")
    return output, report, {row["what"]: row for row in report["rows"]}


def expect(condition, what, output):
    if not condition:
        sys.exit(f"{output}\nFAILED: {what}")
    print(f"ok {what}")


def every_part_has_its_rows(folder):
    fake_card(folder, ("test_good", "test_none", "test_gpu_engine"))
    output, report, rows = result_of(folder, run(folder, "--llmc", folder / "llmc", "--node",
                                                 folder / "node", "--seconds", "100000"))
    wanted = ["test_good", "steps 124M", "steps 124M, PyTorch with flash", "steps 124M, llm.c",
              "steps 124M, PyTorch with cudnn", "profile", "learn gpt2", "learn llama",
              "same bits twice", "round 124M", "round 1.1B", "product, bias", "racecheck test_good",
              "initcheck test_good", "node", "layer of 8B, context 8192", "steps 1.5B", "ceiling"]
    expect(all(rows.get(what, {}).get("result") == "ok" for what in wanted),
           "every part has a row", output + str([w for w in wanted if w not in rows]))
    expect(rows["test_none"]["result"] == "skipped", "a test that cannot run is skipped", output)
    expect(report["failed"] == 0 and report["values"]["steps_124M_of_torch_flash"] == 1,
           "values are numbers", output)
    expect(abs(report["values"]["steps_124M_of_llmc"] - 0.0705 / 0.25) < 1e-3,
           "llm.c's time is read from its lines", output)
    expect("2.00 ms in kernels of one step" in output, "the profile is folded", output)


def a_failure_is_told_and_counts(folder):
    fake_card(folder, ("test_bad", "test_good"))
    process = run(folder, "--only", "tests")
    output, report, rows = result_of(folder, process)
    expect(process.returncode == 1 and report["failed"] == 1, "a failed test fails the run", output)
    expect("off by 3" in rows["test_bad"]["text"], "its words are in the JSON", output)
    expect(rows["test_good"]["result"] == "ok", "the others still run", output)


def the_time_is_kept(folder):
    fake_card(folder, ("test_good",))
    output, _, rows = result_of(folder, run(folder, "--seconds", "5"))
    left_out = [what for what, row in rows.items() if row["result"] == "left out"]
    expect("test_good" in left_out and "round 124M" in left_out,
           "parts without time are left out, and said", output)


def an_emulated_run_leaves_no_test_out(folder):
    """On a card a test that takes too long is left out. Without one it may take ten times as
    long, and is then a failure."""
    fake_card(folder, ("test_good",))
    make(folder / "tools" / "timeout", '#!/bin/bash\necho "$1" >>"$FAKE/limits"\nexit 124\n')
    for options, status, result in (((), 0, "left out"), (("--emulated",), 1, "FAILED")):
        process = run(folder, "--only", "tests", "--seconds", "100000", *options)
        output, _, rows = result_of(folder, process)
        expect(process.returncode == status and rows["test_good"]["result"] == result,
               f"a test that takes too long is {result}", output)
    limits = [int(limit) for limit in (folder / "limits").read_text().split()]
    expect(limits[1] == 10 * limits[0], "an emulated run has ten times as long", str(limits))


def a_run_ended_from_outside_leaves_its_rows(folder):
    fake_card(folder, ("test_good", "test_slow"))
    make(folder / "bin" / "test_slow", "#!/bin/bash\necho \"$$\" >\"$FAKE/slow\"; sleep 2\n")
    process = run(folder, "--only", "tests")
    until = time.monotonic() + 60
    while not (folder / "slow").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, report, rows = result_of(folder, process)
    expect(rows["test_good"]["result"] == "ok" and report["failed"] == 1,
           "rows so far are in the JSON", output)


def a_program_that_hangs_takes_no_more_than_the_time(folder):
    fake_card(folder, ("test_good",))
    make(folder / "bin" / "thinwire-engine-bench", "#!/bin/bash\nwhile read -r _; do :; done\n")
    started = time.monotonic()
    output, report, rows = result_of(folder, run(folder, "--only", "steps learn", "--seconds", "3"))
    expect(time.monotonic() - started < 30 and rows["steps 124M"]["result"] == "FAILED"
           and "without a word" in rows["steps 124M"]["text"],
           "one that never answers is given up", output)
    expect(rows["learn gpt2"]["result"] == "left out" and report["failed"] == 1,
           "parts after it are left out", output)


def a_program_that_dies_is_a_failure(folder):
    fake_card(folder, ("test_good",))
    dying = SERVE.replace("while read -r _; do", "while read -r _ && [ -e \"$FAKE/lives\" ]; do")
    make(folder / "bin" / "thinwire-engine-bench",
         dying + 'echo "a fault of the card" >&2; exit 1\n')
    make(folder / "bin" / "thinwire-round-bench", "#!/bin/bash\necho 'no memory' >&2; exit 1\n")
    make(folder / "bin" / "thinwire-gemm-bench", "#!/bin/bash\necho 'no products' >&2; exit 1\n")
    process = run(folder, "--only", "steps learn round products", "--seconds", "100000")
    output, report, rows = result_of(folder, process)
    failed = {what: row["text"] for what, row in rows.items() if row["result"] == "FAILED"}
    expect(process.returncode == 1 and report["failed"] == len(failed), "failures are counted",
           output)
    expect("a fault of the card" in failed.get("steps 124M", "") and "learn gpt2" in failed
           and "no memory" in failed.get("round 124M", "")
           and "no products" in failed.get("after products", ""),
           "each has the last words of its program", output + str(failed))


def no_card_and_an_unusable_card_are_told_apart(folder):
    fake_card(folder, ("test_good",))
    make(folder / "bin" / "thinwire-engine",
         "#!/bin/bash\necho '{\"error\": \"no cuBLASLt for products\"}'; exit 1\n")
    process = run(folder)
    output, report, rows = result_of(folder, process)
    expect(process.returncode == 77 and rows["steps"]["result"] == "skipped"
           and report["device"] == {"error": "no cuBLASLt for products"}, "no card: skipped",
           output)
    make(folder / "tools" / "nvidia-smi", "#!/bin/bash\necho 'GPU 0: Fake (UUID: 1)'\n")
    process = run(folder)
    output, report, rows = result_of(folder, process)
    expect(process.returncode == 1 and "no cuBLASLt" in rows["device"]["text"],
           "a card that cannot be used is a failure, and its reason is told", output)


def a_step_that_forgets_is_noticed(folder):
    """Another loss on the GPU than on the CPU, and another one the second time."""
    fake_card(folder, ("test_good",))
    make(folder / "bin" / "thinwire-engine-bench",
         SERVE.replace("0.20 4.500000", "0.20 4.5$(date +%N)"))
    process = run(folder, "--only", "learn", "--seconds", "100000")
    output, report, rows = result_of(folder, process)
    expect(rows["same bits twice"]["result"] == "FAILED", "other bits are a failure", output)
    drift = SERVE.replace("4.500000",
                          "$(case \" $* \" in *'cuda:0'*) echo 4.6;; *) echo 4.5;; esac)")
    make(folder / "bin" / "thinwire-engine-bench", drift)
    output, report, rows = result_of(folder, run(folder, "--only", "learn", "--seconds", "100000"))
    expect(rows["learn gpt2"]["result"] == "FAILED" and rows["same bits twice"]["result"] == "ok",
           "another loss than the CPU's is a failure", output)


# Folders whose files are all built, but for those that stand in for others.
WHOLE = ("kernels/cuda", "worker/engine", "worker/engine/cpu", "worker/engine/cuda", "worker/learn",
         "worker/loop", "worker/merge")
STAND_INS = {"worker/engine/cuda/gpu_none.c", "worker/engine/cuda/gpu_none.c", "worker/loop/main.c"}


def the_build_has_every_source(folder):
    """A file that only CMake knows would be missed when the programs are linked, on the card."""
    listed = subprocess.run([ROOT / "tests/gpu/build", folder, "--list"], check=True, text=True,
                            capture_output=True, env=dict(os.environ, NVCC="/bin/true"))
    sources = {str(path.relative_to(ROOT)) for place in WHOLE
               for path in (ROOT / place).iterdir() if path.suffix in (".c", ".cu")}
    missing = sorted(sources - STAND_INS - set(listed.stdout.split()))
    expect(len(sources) > 40 and not missing, "every source of these rooms is built", str(missing))


def main():
    with tempfile.TemporaryDirectory() as place:
        for test in (every_part_has_its_rows, a_failure_is_told_and_counts, the_time_is_kept,
                     an_emulated_run_leaves_no_test_out,
                     a_program_that_hangs_takes_no_more_than_the_time,
                     a_program_that_dies_is_a_failure, no_card_and_an_unusable_card_are_told_apart,
                     a_step_that_forgets_is_noticed, the_build_has_every_source,
                     a_run_ended_from_outside_leaves_its_rows):
            folder = pathlib.Path(place) / test.__name__
            test(folder)
    unknown = subprocess.run([ROOT / "tests/gpu/run", "--only", "nothing"], capture_output=True,
                             text=True, check=False)
    expect(unknown.returncode == 2 and re.search("no part nothing", unknown.stderr),
           "a part that does not exist is named", unknown.stderr)


main()

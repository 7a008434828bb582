"""test_api_pages.py LIBRARY BIN [PYTHON] - pages of the API are made, and their examples run.

Each example of a docstring, of worker/python/README.md and of thinwire/worker.h is taken from its
text and trains a run of a node of its own to the end. Examples whose libraries PYTHON lacks are
named and left out.
"""
import doctest
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import test_examples as examples

HERE = pathlib.Path(__file__).resolve()
PACKAGE = examples.ROOT / "worker/python"
HEADER = examples.ROOT / "worker/lib/include/thinwire/worker.h"
# Example: the module that it needs beside the package.
NEEDS = {"thinwire": "torch", "README.md": "torch", "thinwire.torch": "torch",
         "thinwire.transformers": "transformers", "thinwire.lightning": "lightning"}
SIDE = 8
PROGRAM = """#include <string.h>
#include <thinwire/worker.h>
static float w[64];
static int out(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
               uint64_t count, float *to) {
    (void)self, (void)array, (void)tensor;
    memcpy(to, w + begin, count * sizeof(float));
    return 0;
}
static int in(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
              uint64_t count, const float *from) {
    (void)self, (void)array, (void)tensor;
    memcpy(w + begin, from, count * sizeof(float));
    return 0;
}
int main(void) {
    const struct thinwire_trainer trainer = {.read = out, .write = in};
    struct thinwire_step done = {.loss = 1};
    struct thinwire_next next;
    struct thinwire_error error;
    enum thinwire_status status;
    EXAMPLE
    return status == THINWIRE_FINISHED ? 0 : 1;
}
"""


def indented(text):
    """The first indented block of a docstring."""
    found = re.search(r"(?:^ {4}.*\n|^\n)+", text[text.index("\n\n    "):], re.M)
    return "\n".join(line[4:] for line in found[0].splitlines()).strip() + "\n"


def source(name):
    """The code of an example."""
    if name == "README.md":
        text = (PACKAGE / name).read_text(encoding="utf-8")
        return re.search(r"```python\n(.*?)```", text, re.S)[1]
    return indented(importlib.import_module(name).__doc__)


def play(name, socket):
    """Runs an example with the names that it takes for granted."""
    import torch

    class Square(torch.nn.Module):
        """Holds "w", and gives its distance to 1."""

        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(SIDE, SIDE))

        def forward(self, x=None, labels=None):
            """As transformers' models."""
            return {"loss": ((self.w - 1) ** 2).mean()}

    model = Square()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)

    def train_one_batch(*_):
        optimizer.zero_grad()
        loss = model()["loss"]
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        return loss

    names = {"model": model, "optimizer": optimizer, "train_one_batch": train_one_batch,
             "batches": iter(int, 1), "torch": torch, "loss": 1.0, "time": time}
    if name == "thinwire.transformers":
        import transformers
        data = [{"x": torch.zeros(1), "labels": torch.zeros(1)}] * 8
        names["trainer"] = transformers.Trainer(
            model=model, train_dataset=data,
            args=transformers.TrainingArguments(output_dir="out", max_steps=10**6, use_cpu=True,
                                                save_strategy="no", report_to="none",
                                                disable_tqdm=True, learning_rate=0.05))
    if name == "thinwire.lightning":
        import lightning

        class Module(lightning.LightningModule):
            """The same, as Lightning wants it."""

            def __init__(self):
                super().__init__()
                self.square = model

            def training_step(self, *_):
                """Gives the loss."""
                return self.square()["loss"]

            def configure_optimizers(self):
                """Gives the optimizer."""
                return optimizer

        names.update(lightning=lightning, module=Module(),
                     loader=torch.utils.data.DataLoader(torch.zeros(64, 1)))
    code = source(name).replace("/run/thinwire/worker.sock", socket)
    code = re.sub(r"tokens=[\d_]+, step_tokens=\d+",
                  "tokens=10_000, step_tokens=64, nodes=1, listen='127.0.0.1:0'", code)
    code = re.sub(r"\.\.\.(?= +#)", "time.sleep(0.01)", code)  # "one step of yours"
    exec(compile(code, name, "exec"), names)  # pylint: disable=exec-used
    if name != "thinwire":  # there the step is an ellipsis
        assert float(model()["loss"]) < 0.5, "nothing was learned"


def read_log(folder):
    """The example of thinwire.runlog, over the run log of a node that has trained."""
    import thinwire.runlog
    code = re.findall(r"(?:^ {4}.*\n)+", thinwire.runlog.__doc__, re.M)[1]
    code = "\n".join(line[4:] for line in code.splitlines())
    assert code.startswith("for at, line in"), code
    exec(compile(code, "thinwire.runlog", "exec"),  # pylint: disable=exec-used
         {"thinwire": thinwire, "folder": pathlib.Path(folder)})


def compile_header(library, folder):
    """The program with the header's example."""
    lines = re.findall(r"^ \*(?:     (.*)| ?)$", HEADER.read_text(encoding="utf-8"), re.M)
    code = "\n".join(line for line in lines if line)
    assert "... take one step" in code and "thinwire_worker_close" in code, code
    code = re.sub(r"\.\.\. take one step.*? \.\.\.", "done.loss = next.lr;", code)
    code = code.replace("struct thinwire_worker *worker;", "struct thinwire_worker *worker = NULL;")
    (folder / "header.c").write_text(PROGRAM.replace("EXAMPLE", code), encoding="utf-8")
    examples.run("cc", "-Wall", "-Werror", "-I", HEADER.parents[1], folder / "header.c", "-o",
                 folder / "header", library, f"-Wl,-rpath,{library.parent}")


def with_node(library, bin_dir, folder, name, command):
    """Runs a trainer beside a node of a short run; it must end by itself."""
    folder.mkdir()
    examples.run(bin_dir / "thinwire", "run", "new", "api", "--tensors", f"w:{SIDE}x{SIDE}",
                 "--batch", "4", "--context", "16", "--tokens", "10k", "--nodes", "1", "--set",
                 "train.lr=0.05", "--out", folder / "manifest")
    examples.run(bin_dir / "thinwire", "init", "--dir", folder / "n", "--name", "n", "--run",
                 folder / "manifest", "--listen", "127.0.0.1:0")
    config = folder / "n/node.conf"
    text = config.read_text(encoding="ascii")
    config.write_text(text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1),
                      encoding="ascii")
    socket = folder / "n/sockets/worker.sock"
    environment = {**os.environ, "THINWIRE_LIBRARY": str(library), "OMP_NUM_THREADS": "1",
                   "THINWIRE_WORKER_SOCKET": str(socket), "PYTHONPATH": str(PACKAGE),
                   "THINWIRE_BIN": str(bin_dir), "XDG_STATE_HOME": str(folder / "state")}
    with open(folder / "log", "wb") as log, subprocess.Popen(
            [bin_dir / "thinwired", "--config", config], stdout=log, stderr=log) as daemon:
        try:
            done = subprocess.run([*map(str, command), *([] if name == "worker.h" else
                                                         [str(socket)])],
                                  env=environment, cwd=folder, check=False, capture_output=True,
                                  text=True, timeout=examples.PATIENCE_S)
        finally:
            daemon.terminate()
    assert done.returncode == 0, f"{name}: {done.stderr}{(folder / 'log').read_text()}"
    print(f"{name}: its example trains a run to the end")


def check(library, bin_dir, python, folder):
    """Pages, doctests, examples."""
    made = subprocess.run([python, examples.ROOT / "deploy/api_pages", folder / "pages"],
                          env={**os.environ, "THINWIRE_LIBRARY": str(library)}, check=True,
                          capture_output=True, text=True).stdout
    print(made.strip())
    for page in (folder / "pages").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert str(examples.ROOT) not in text and 'href="file' not in text, page.name
        for target in re.findall(r'href="(?!http)([^"#]+)"', text):
            assert (folder / "pages" / target).exists(), f"{page.name} links to {target}"
    compile_header(library, folder)
    with_node(library, bin_dir, folder / "c", "worker.h", [folder / "header"])
    subprocess.run([python, HERE, "runlog", folder / "c/n/state"], check=True,
                   env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    for name, need in NEEDS.items():
        if subprocess.run([python, "-c", f"import {need}"], check=False,
                          capture_output=True).returncode != 0:
            print(f"{name}: {python} has no {need}")
            continue
        with_node(library, bin_dir, folder / name, name, [python, HERE, "play", name])
        if name == "thinwire.torch":
            for module in ("thinwire.island", "thinwire.progress"):
                subprocess.run([python, HERE, "doctest", module], check=True,
                               env={**os.environ, "PYTHONPATH": str(PACKAGE)})


def main():
    """Runs the test, or an example within it."""
    if sys.argv[1] == "play":
        play(*sys.argv[2:4])
        return
    if sys.argv[1] == "runlog":
        read_log(sys.argv[2])
        return
    if sys.argv[1] == "doctest":
        found = doctest.testmod(importlib.import_module(sys.argv[2]))
        assert found.failed == 0 and found.attempted > 0, found
        return
    library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    python = sys.argv[3] if len(sys.argv) > 3 else "/usr/bin/python3"
    if shutil.which(python) is None or shutil.which("cc") is None:
        print(f"no {python}, or no C compiler: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="twap") as name:
        check(library, bin_dir, python, pathlib.Path(name))


if __name__ == "__main__":
    main()

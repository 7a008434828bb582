"""test_frameworks.py LIBRARY BIN PYTHON accelerate|lightning - examples with other frameworks.

Node 0 trains with deploy/examples/train_accelerate.py or train_lightning.py, node 1 natively. Both
must learn, and end with one anchor after rounds of both. PYTHON has torch and the framework.
"""
import pathlib
import subprocess
import sys
import tempfile

import test_examples as examples

EXAMPLES = examples.ROOT / "deploy/examples"
OPTIONS = {"accelerate": [], "lightning": ["--accelerator", "cpu"]}


class Cluster(examples.Cluster):
    """A node with the example, and a native one."""

    def __init__(self, library, bin_dir, folder, python, framework):
        super().__init__(library, bin_dir, EXAMPLES / f"train_{framework}.py", folder)
        self.environment["ACCELERATE_USE_CPU"] = "true"
        self.command = [python, self.example, "--text", folder / "text", *OPTIONS[framework],
                        "--save", folder / "merged.pt"]

    def configure(self, idx, text):
        """The example is started by the test, the native worker by its daemon."""
        return text if idx == 1 else text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1)

    def trainer(self, idx):
        """Starts the example beside node 0."""
        if idx == 1:
            return None
        return self.spawn("trainer0", *self.command, "--socket",
                          self.folder / "n0.run/worker.sock")

    def kill(self, idx, pid=None):
        """Nobody starts these trainers anew; test_examples.py kills one."""


def main():
    """Runs the test."""
    library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    python, framework = sys.argv[3:5]
    if subprocess.run([python, "-c", f"import torch, {framework}"], check=False,
                      capture_output=True).returncode != 0:
        print(f"{python} has no {framework}: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="twfw") as name:
        folder = pathlib.Path(name)
        examples.guard(Cluster(library, bin_dir, folder, python, framework))
        assert (folder / "merged.pt").stat().st_size > 0


if __name__ == "__main__":
    main()

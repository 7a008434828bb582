"""homes.py - real daemons with the stub worker on the hosts of a lab (lab.py). Public hosts listen
at their address. Homes listen on all addresses, as by default. All dial the public hosts.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
import nodes  # pylint: disable=wrong-import-position

PORT = 4747


class Homes(nodes.Nodes):
    """Daemons, one on each host of the lab."""

    def __init__(self, bin_dir, folder, lab, **keys):
        self.lab = lab
        super().__init__(bin_dir, folder, len(lab.hosts), star=self, **keys)
        public = [idx for idx, kind in enumerate(lab.hosts) if kind == "public"]
        for idx, kind in enumerate(lab.hosts):
            self.set_key(idx, "peers", ", ".join(self.address(i) for i in public if i != idx))
            if kind != "public":
                self.set_key(idx, "listen", f"0.0.0.0:{PORT}, [::]:{PORT}")

    def space(self, idx):
        """Namespace of a host."""
        return self.lab.space(idx)

    def address(self, idx):
        """Address of a host in the internet; of a home, that of its router."""
        return f"{self.lab.wan[idx]}:{PORT}"

    def set_key(self, idx, key, value):
        """Sets a key of [network] in the configuration of a node."""
        path = self.config(idx)
        text = re.sub(rf"(?m)^#?{key} *=.*\n", "", path.read_text(encoding="utf-8"))
        path.write_text(text.replace("[network]\n", f"[network]\n{key} = {value}\n", 1),
                        encoding="utf-8")

    def short_id(self, idx):
        """Short id of a running node."""
        return self.get(idx)["node"]["id_short"]

    def peer(self, idx, other):
        """The row of an alive peer with that short id; None: no link."""
        answer = self.get(idx, "peers")
        for row in answer["peers"] if answer else []:
            if row["id_short"] == other and row["link"] == "alive":
                return row
        return None

    def stop(self, idx):
        """Stops a daemon in order."""
        self.processes[idx].terminate()
        code = self.processes[idx].wait(40)
        if code != 0:
            raise RuntimeError(f"n{idx} ended with {code}")

    def text_of(self, idx, verb):
        """Output of a verb of `thinwire` for people, without line breaks."""
        done = subprocess.run([*self.lab.on(idx), self.tool("thinwire"), verb, "--config",
                               str(self.config(idx))], capture_output=True, text=True, check=False)
        return " ".join((done.stdout + done.stderr).split())

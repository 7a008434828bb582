#!/usr/bin/env python3
# collect.py - collects the texts of the quality bench from packages of Debian.
"""Usage:
    collect.py SET FOLDER [--list FILE]

Writes a text for each kind of SET to FOLDER/KIND.txt. Sets, with their kinds and sizes, are in SETS
below. Packages come by `apt-get download` and are unpacked to a temporary folder, so nothing is
installed and no right is needed.

A text is the concatenation of the kind's files, cut after the last line that fits into its size.
The files are ordered by the SHA-256 of their names, so that the held-out end is like the rest. The
same versions of the packages give the same bytes. Prints a line for each text: its SHA-256,
SET/KIND and the versions. If the list (texts.list) has another hash for the same versions, exits
with 1."""
import argparse
import gzip
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile

KILO, MEGA = 1000, 1000 * 1000


def bible(folder, _size):
    """The King James Bible in its own order: one verse a line."""
    library = next(folder.rglob("bible.data")).parent
    program = folder / "usr/bin/bible"
    yield subprocess.run([program, "-p", library, "-f", "gen1:1-rev22:21"], check=True,
                         capture_output=True, stdin=subprocess.DEVNULL).stdout


def mixed(names):
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def files(*patterns):
    """The files with such names, unpacked if they end in .gz. Links are left out."""
    def read(folder, _size):
        found = {str(path.relative_to(folder)): path for pattern in patterns
                 for path in folder.rglob(pattern) if path.is_file() and not path.is_symlink()}
        for name in mixed(found):
            data = found[name].read_bytes()
            yield gzip.decompress(data) if name.endswith(".gz") else data
    return read


def archive(*suffixes):
    """The files with such ends in the one archive of the package. It is read twice: first the names
    and sizes alone, then the wanted files, so that the disk need not hold them."""
    def read(folder, size):
        path = next(folder.rglob("*.tar.xz"))
        with tarfile.open(path) as packed:
            sizes = {member.name: member.size for member in packed
                     if member.isfile() and member.name.endswith(suffixes)}
        wanted, parts, total = [], {}, 0
        for name in mixed(sizes):
            if total <= size:
                wanted.append(name)
            total += sizes[name]
        chosen = set(wanted)
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile() and member.name in chosen:
                    parts[member.name] = packed.extractfile(member).read()
        return (parts[name] for name in wanted)
    return read


KINDS = {  # kind: (packages, reader)
    "bible": (("bible-kjv", "bible-kjv-text"), bible),
    "headers": (("linux-libc-dev", "libc6-dev"), files("*.h")),
    "manuals": (("manpages", "manpages-dev"), files("*.gz")),
    "python": (("libpython3.11-stdlib",), files("*.py")),
    "kernel": (("linux-source-6.1",), archive(".c", ".h")),
}
SETS = {  # set: {kind: bytes}
    "unlike": {kind: 1150 * KILO for kind in ("bible", "headers", "manuals", "python")},
    "3m": {"kernel": 64 * MEGA},
    "10m": {"kernel": 212 * MEGA},
}


def unpack(packages, folder):
    """Downloads and unpacks the packages. Returns their versions as NAME=VERSION."""
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        subprocess.run(["apt-get", "-q", "download", *packages], check=True, cwd=downloads,
                       stdout=subprocess.DEVNULL)
        versions = []
        for package in sorted(pathlib.Path(downloads).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            told = subprocess.run(["dpkg-deb", "--show", "--showformat=${Package}=${Version}",
                                   package], check=True, capture_output=True, text=True)
            versions.append(told.stdout)
    return sorted(versions)


def cut(parts, size):
    """The first bytes of all parts, at most `size`, up to the end of a line."""
    text = bytearray()
    for part in parts:
        text += part
        if len(text) > size:
            return bytes(text[:text.rindex(b"\n", 0, size) + 1])
    sys.exit(f"collect: the packages have {len(text)} bytes, and {size} are wanted")


def collect(kind, size, to):
    packages, reader = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        versions = unpack(packages, folder)
        text = cut(reader(pathlib.Path(folder), size), size)
    to.write_bytes(text)
    return hashlib.sha256(text).hexdigest(), versions


def listed(path):
    """{(SET/KIND, versions): SHA-256} of a list in the form that this program prints."""
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    return {(line[1], tuple(line[2:])): line[0] for line in lines}


def main():
    parser = argparse.ArgumentParser(description="Texts of the quality bench.")
    parser.add_argument("set", choices=sorted(SETS))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--list", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("texts.list"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    known, is_good = listed(args.list), True
    for kind, size in SETS[args.set].items():
        name = f"{args.set}/{kind}"
        found, versions = collect(kind, size, args.folder / f"{kind}.txt")
        print(found, name, *versions, flush=True)
        wanted = known.get((name, tuple(versions)), found)
        if wanted != found:
            print(f"collect: {name} must have the hash {wanted}", file=sys.stderr)
            is_good = False
    sys.exit(not is_good)


if __name__ == "__main__":
    main()

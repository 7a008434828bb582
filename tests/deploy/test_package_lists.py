#!/usr/bin/env python3
# test_package_lists.py - the packages of Debian, Fedora and Arch have every file of CMake.
#   test_package_lists.py SOURCE BUILD
# BUILD is a finished build, which is installed into a folder of the test. The lists of
# deploy/debian and deploy/rpm are compared with it, and package() of deploy/arch is run. The lists
# name no file that there is not. Versions and libraries are those of CMake.
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

failures = 0

# The macros of Fedora that stand in the lists.
MACROS = {"_bindir": "usr/bin", "_unitdir": "usr/lib/systemd/system", "_sysconfdir": "etc",
          "_sysusersdir": "usr/lib/sysusers.d", "_modulesloaddir": "usr/lib/modules-load.d",
          "_sysctldir": "usr/lib/sysctl.d", "_mandir": "usr/share/man", "_datadir": "usr/share",
          "_libdir": "usr/lib64", "_includedir": "usr/include", "python3_sitelib": "python"}


def check(holds, sentence):
    global failures
    if not holds:
        print(f"FAIL: {sentence}")
        failures += 1


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def matches(path, row):
    """Whether a row names the file, or a folder above it."""
    return any(fnmatch.fnmatch(name, row.rstrip("/"))
               for name in [path, *map(str, Path(path).parents)])


def with_libraries_in(files, libdir, other):
    """The files, as if the libraries had been installed into another folder."""
    return {re.sub(rf"^usr/{libdir}/(libthinwire|pkgconfig)", rf"usr/{other}/\1", path)
            for path in files}


def check_rows(kind, files, rows):
    for path in sorted(files):
        owners = [row for row in rows if matches(path, row)]
        check(len(owners) == 1, f"{kind}: {path} is in {len(owners)} rows of the lists")
    for row in rows:
        check(any(matches(path, row) for path in files), f"{kind}: nothing is installed as {row}")


def check_debian(source, installed, libdir):
    rows = []
    for path in (source / "deploy/debian").glob("*.install"):
        rows += [line.split()[0] for line in path.read_text().splitlines()
                 if not line.startswith("worker/")]
    # debhelper makes these from deploy/systemd, for the package of the programs.
    files = {path for path in installed if not path.startswith("usr/lib/sysusers.d/")}
    check_rows("deb", with_libraries_in(files, libdir, "lib/triplet"), rows)


def in_fedoras_places(installed):
    return {path.replace("zsh/vendor-completions", "zsh/site-functions") for path in installed}


def check_rpm(source, installed, libdir):
    text = (source / "deploy/rpm/thinwire.spec").read_text()
    rows = []
    for section in re.findall(r"^%files.*?\n(.*?)(?=^%files|^%changelog)", text, re.M | re.S):
        for line in section.split("\n"):
            if line and not line.startswith(("%license", "%doc", "%dir")):
                rows.append(re.sub(r"%\{(\w+)\}", lambda found: MACROS[found[1]], line))
    files = with_libraries_in(in_fedoras_places(installed), libdir, "lib64")
    python = {f"python/thinwire/{path.name}"
              for path in (source / "worker/python/thinwire").glob("*.py")}
    check_rows("rpm", files | python, rows)


def check_arch(source, build, installed, folder):
    """Runs package() as makepkg does, with this build in place of the one of build()."""
    script = source / "deploy/arch/PKGBUILD"
    version = re.search(r"^pkgver=(\S+)", script.read_text(), re.M)[1]
    tree = folder / f"thinwire-{version}"
    (tree / "build").mkdir(parents=True)
    (tree / "build/arch").symlink_to(build)
    for name in ("README.md", "SECURITY.md", "deploy", "worker"):
        (tree / name).symlink_to(source / name)
    command = 'cd "$1"; pkgdir=$1/package; . "$2"; package'
    ran = subprocess.run(["bash", "-euc", command, "-", folder, script],
                         capture_output=True, text=True)
    check(ran.returncode == 0, f"package() of PKGBUILD: {ran.stderr}")
    packed = files_below(folder / "package")
    for path in sorted(in_fedoras_places(installed) - packed):
        check(False, f"arch: {path} is not in the package")
    for name in ("torch.py", "py.typed"):
        check(any(re.fullmatch(rf"usr/lib/python[\d.]+/site-packages/thinwire/{name}", path)
                  for path in packed),
              f"arch: {name} is not in the package")


def check_requirements(source):
    cmake, libraries, spec, arch, python = ((source / name).read_text() for name in (
        "CMakeLists.txt", "deploy/libraries.cmake", "deploy/rpm/thinwire.spec",
        "deploy/arch/PKGBUILD", "worker/python/pyproject.toml"))
    version = re.search(r"^project\(thinwire VERSION (\S+)", cmake, re.M)[1]
    check(re.search(rf"^Version: +{version}$", spec, re.M), f"the spec is not of {version}")
    check(f"\npkgver={version}\n" in arch, f"PKGBUILD is not of {version}")
    check(f'\nversion = "{version}"\n' in python, f"the Python package is not of {version}")
    depends = re.search(r"^depends=\((.*?)\)", arch, re.M | re.S)[1].split()
    rows = re.findall(r"^tw_library\((.*)\)$", libraries, re.M)
    check(len(rows) > 9, "deploy/libraries.cmake has changed its form")
    for _, _, _, fedora, name in map(str.split, rows):
        check(re.search(rf"^BuildRequires: +{re.escape(fedora)}$", spec, re.M),
              f"the spec lacks {fedora}")
        check(name in depends, f"PKGBUILD lacks {name}")


def main():
    source, build = (Path(word).resolve() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["cmake", "--install", build, "--prefix", "/usr"], check=True,
                       capture_output=True, env={**os.environ, "DESTDIR": f"{folder}/installed"})
        installed = files_below(folder / "installed")
        cache = (build / "CMakeCache.txt").read_text()
        libdir = re.search(r"^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", cache, re.M)[1]
        check(len(installed) >= 20, f"only {len(installed)} files are installed")
        check_debian(source, installed, libdir)
        check_rpm(source, installed, libdir)
        check_arch(source, build, installed, folder)
    check_requirements(source)
    return 1 if failures else 0


sys.exit(main())

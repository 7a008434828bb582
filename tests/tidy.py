#!/usr/bin/env python3
# tidy.py - the rules of CONTRIBUTING.md that no compiler checks: layers, purity, bounds of form.
#
#   tests/tidy.py [BUILD]           checks the sources; with a build folder also the calls of
#                                   pure libraries. One line per finding, `file:line: sentence`;
#                                   exit status 1 if there is any.
#   tests/tidy.py --rooms [BUILD]   prints which room includes which; with a build folder also
#                                   which calls which. Exit status 1 if they form a circle.
"""Checks the layers, the purity and the form of Thinwire's sources."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import prose

ROOT = pathlib.Path(__file__).resolve().parent.parent

# ---- the layers -----------------------------------------------------------------------------

# module -> modules it may include and link, besides itself. The architecture in eight lines.
LAYERS = {
    "base": set(),
    "proto": {"base"},
    "kernels": {"base"},
    "compress": {"base", "proto", "kernels"},
    "sync": {"base", "proto"},
    "worker": {"base", "proto", "kernels", "compress"},
    "daemon": {"base", "proto", "compress", "sync"},
    "tests": {"base", "proto", "kernels", "compress", "sync", "worker", "daemon"},
}

# Folders in which the files form no circle either.
ORDERED = ("daemon/node",)

# room -> rooms of the same module that it may include and call. A room is a folder, and outside of
# sync/ a static library too. The two wings of the engine know the room that they are in, and it
# knows them. sync/ itself is the topmost room of the core.
ROOMS = {
    "sync/core": set(),
    "sync/transfer": {"sync/core"},
    "sync/round": {"sync/core", "sync/transfer"},
    "sync/check": {"sync/core", "sync/transfer", "sync/round"},
    "sync/vote": {"sync/core", "sync/transfer", "sync/round", "sync/check"},
    "sync/pair": {"sync/core", "sync/transfer", "sync/round"},
    "sync/crew": {"sync/core", "sync/transfer", "sync/round"},
    "sync/history": {"sync/core", "sync/transfer", "sync/round", "sync/check", "sync/vote",
                     "sync/pair", "sync/crew"},
    "sync": {"sync/core", "sync/transfer", "sync/round", "sync/check", "sync/vote", "sync/pair",
             "sync/crew", "sync/history"},
    "sync/fetch": {"sync/core"},
    "sync/members": set(),
    "sync/trace": {"sync/core"},
    "worker/support": set(),
    "worker/tokenizer": {"worker/support"},
    "worker/engine": {"worker/support", "worker/engine/cpu", "worker/engine/cuda"},
    "worker/engine/cpu": {"worker/engine", "worker/support"},
    "worker/engine/cuda": {"worker/engine", "worker/support"},
    "worker/data": {"worker/support", "worker/tokenizer"},
    "worker/data/prepare": {"worker/data", "worker/support", "worker/tokenizer"},
    "worker/merge": {"worker/engine", "worker/support"},
    "worker/learn": {"worker/data", "worker/engine", "worker/merge", "worker/support",
                     "worker/tokenizer"},
    "worker/loop": {"worker/engine", "worker/learn", "worker/merge", "worker/support"},
    "worker/lib": {"worker/data", "worker/engine", "worker/learn", "worker/loop", "worker/merge",
                   "worker/support"},
    "worker/files": {"worker/learn", "worker/support", "worker/tokenizer"},
    "worker/cli": {"worker/data", "worker/data/prepare", "worker/engine", "worker/files",
                   "worker/learn", "worker/merge", "worker/support", "worker/tokenizer"},
    "daemon/store": set(),
    "daemon/config": {"daemon/store"},
    "daemon/auth": {"daemon/config", "daemon/store"},
    "daemon/net": {"daemon/auth", "daemon/config", "daemon/store"},
    "daemon/dataset": {"daemon/net", "daemon/store"},
    "daemon/setup": {"daemon/auth", "daemon/config", "daemon/dataset", "daemon/net",
                     "daemon/store"},
    "daemon/workerlink": set(),
    "daemon/router": set(),
    "daemon/process": set(),
    "daemon/recorder": {"daemon/store"},
    "daemon/replay": {"daemon/auth", "daemon/recorder", "daemon/workerlink"},
    "daemon/web": set(),
    "daemon/api": {"daemon/config", "daemon/net", "daemon/router", "daemon/web"},
    "daemon/runlog": {"daemon/api", "daemon/process", "daemon/store"},
    "daemon/pause": {"daemon/api", "daemon/config", "daemon/process"},
    "daemon/node": {"daemon/api", "daemon/auth", "daemon/config", "daemon/dataset", "daemon/net",
                    "daemon/pause", "daemon/process", "daemon/recorder", "daemon/router",
                    "daemon/runlog",
                    "daemon/setup", "daemon/store", "daemon/workerlink"},
    "daemon/cli": {"daemon/auth", "daemon/config", "daemon/net", "daemon/store"},
}
# A header that counts as another room's.
LENT = {"sync/mutants.h": "sync/core"}
WINGS = {"worker/engine/cpu": "worker/engine", "worker/engine/cuda": "worker/engine"}
FILES = 50  # in one folder

PURE = ("base", "proto", "compress", "sync")  # no clock, socket, file, thread, stdio, globals, heap
PURE_HEADERS = {"limits.h", "math.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h",
                "stddef.h", "stdint.h", "string.h", "inttypes.h"}

# file -> impure things it may use.
IMPURE = {
    # the last words of a broken program
    "base/assert.c": {"stdio.h", "stdlib.h", "fprintf", "abort"},
    # formats into the caller's error
    "base/status.c": {"stdio.h", "vsnprintf"},
    # fields of a broken record, into the caller's error
    "base/json_field.c": {"stdio.h", "snprintf"},
    # numbers as text, into the caller's room
    "base/units.c": {"ctype.h", "stdio.h", "snprintf"},
    # arithmetic that comes from libraries
    "base/hash.c": {"openssl/evp.h", "openssl/sha.h", "xxhash.h"},
    "base/signature.c": {"openssl/err.h", "openssl/evp.h"},
    # tw_log, which only daemon/ and worker/ link: a level, a clock, stderr
    "base/log.c": {"stdio.h", "stdlib.h", "sys/stat.h", "time.h", "unistd.h", "getenv", "snprintf",
                   "vsnprintf", "clock_gettime", "gmtime_r", "strftime", "write", "global"},
    # words for people, as wide as their terminal, for daemon/ and worker/
    "base/page.c": {"stdio.h", "stdlib.h", "sys/ioctl.h", "unistd.h", "getenv", "free", "fprintf",
                    "vfprintf"},
    "base/page.h": {"stdio.h"},
    # resource limits of a process, for daemon/ and worker/
    "base/machine.c": {"sched.h", "stdio.h", "sys/resource.h", "unistd.h", "snprintf", "fopen",
                       "printf"},
    # vector forms, chosen at run time
    "compress/codec_sparse.c": {"immintrin.h"},
    "compress/ecsq_decode.c": {"immintrin.h"},
    "compress/ecsq_encode.c": {"immintrin.h"},
    "compress/rans_avx2.c": {"immintrin.h"},
    # one arena and one zstd context, made at start
    "compress/pack.c": {"stdlib.h", "zstd.h", "calloc", "malloc", "free"},
}
IMPURE_CALL = re.compile(
    r"\b(malloc|calloc|realloc|free|strdup|abort|exit|_exit|getenv|setenv|f?open|close|read|write"
    r"|fwrite|fread|v?f?printf|v?snprintf|puts|perror|time|clock|clock_gettime|gettimeofday"
    r"|gmtime_r|localtime_r|nanosleep|usleep|sleep|socket|send|recv|sendmsg|recvmsg|mmap|munmap"
    r"|fork|signal|pthread_\w+|uv_\w+|SSL_\w+|rand|random|getrandom)\s*\(")

# External symbols that pure libraries may call: arithmetic, memory and words, no system.
PURE_SYMBOLS = re.compile(
    r"(_?tw_\w+|thinwire__\w+|protobuf_c_\w+|mem(cpy|set|cmp|move|chr|rchr)|str\w+|bsearch|qsort"
    r"|ERR_clear_error"
    r"|EVP_\w+|SHA256\w*|XXH64\w*|XXH_\w+|ZSTD_\w+|_GLOBAL_OFFSET_TABLE_|f?abs\w*|fma\w*"
    r"|__(popcount|udiv|umod|asan|ubsan|tsan|sancov|sanitizer|lsan|llvm|start_|stop_|stack_chk)\w*"
    r"|l?l?rintf?|nearbyintf?|ldexpf?|frexpf?|scalbnf?|isalnum|isalpha|isdigit|isspace|tolower)")
PURE_ARCHIVES = {"base": ["tw_base", "tw_hash"], "compress": ["tw_compress", "tw_pack"],
                 "proto": ["tw_run", "tw_compute", "tw_message", "tw_cert", "tw_proto", "tw_shm",
                           "tw_safetensors"],
                 "sync": ["tw_sync", "tw_position", "tw_members", "tw_fetch", "tw_penalty"]}

# Libraries from outside that a module may link. daemon and tests may use all that were chosen.
CHOSEN = {"PkgConfig::" + name for name in (
    "CRYPTO", "XXHASH", "PROTOBUF_C", "ZSTD", "OPENBLAS", "INIH", "JANSSON", "OPENSSL", "UV",
    "MICROHTTPD", "CURL", "CMOCKA", "MINIUPNPC", "SYSTEM_JANSSON",
    "TEXT_PCRE2", "TEXT_UTF8PROC", "TEXT_ZLIB")} | {
        "m", "gomp", "Threads::Threads", "Library::NATPMP", "CUDA::cudart", "CUDA::cudart_static",
        "${ONEDNN_LIBRARY}"}
EXTERNAL = {
    "base": {"PkgConfig::CRYPTO", "PkgConfig::XXHASH"},
    "proto": {"PkgConfig::PROTOBUF_C"},
    "kernels": {"m", "gomp", "${ONEDNN_LIBRARY}", "PkgConfig::OPENBLAS", "CUDA::cudart",
                "CUDA::cudart_static"},
    "compress": {"m", "PkgConfig::ZSTD"},
    "sync": set(),
    "worker": {"m", "Threads::Threads", "PkgConfig::JANSSON", "PkgConfig::TEXT_PCRE2",
               "PkgConfig::TEXT_UTF8PROC", "PkgConfig::TEXT_ZLIB", "PkgConfig::ZSTD"},
    "daemon": CHOSEN,
    "tests": CHOSEN,
}
# A GPU machine with a compiler and nothing else must be able to build the engine: its libraries.
# There tw_hash is plain C, and code that reads JSON is left out.
ENGINE = {"tw_worker_engine", "tw_worker_support", "tw_kernels_cuda", "CUDA::cudart_static",
          "tw_run", "tw_compute", "tw_hash", "tw_machine", "tw_kernels", "tw_matmul", "tw_base",
          "tw_flags", "m", "gomp", "Threads::Threads", "${ONEDNN_LIBRARY}", "PkgConfig::OPENBLAS",
          "PkgConfig::JANSSON"}

# Results of these files are bit-equal on all nodes: correctly rounded operations, no libm.
AGREED = re.compile(r"(kernels/(outer|merge|mix|norm|ref/(outer|merge|mix|norm)_ref)"
                    r"|compress/[\w/]+)\.c")
INEXACT = re.compile(r"\b(exp|exp2|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|sinh|cosh|atan2?"
                     r"|erf|cbrt|hypot|tgamma|rsqrt)[fl]?\s*\(|#\s*pragma\s+omp\s+.*reduction"
                     r"|-ffast-math|FLT_EVAL|\bFMA\b")
FLOATS = re.compile(r"\b(float|double|_Float\w+|strto[df]|strtold)\b|\b\d+\.\d*f?\b|<math\.h>"
                    r"|<float\.h>")

BANNED = {  # call -> its replacement
    "strcpy": "memcpy with a bound", "strcat": "snprintf", "strncpy": "snprintf",
    "strncat": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "getline",
    "atoi": "strtol with its checks", "atol": "strtol", "atoll": "strtoll", "atof": "strtod",
    "strtok": "strtok_r", "alloca": "the caller's memory", "system": "posix_spawn",
    "popen": "posix_spawn", "tmpnam": "mkstemp", "mktemp": "mkstemp", "rand": "base/rng.h",
    "srand": "base/rng.h", "random": "base/rng.h", "gmtime": "gmtime_r", "localtime": "localtime_r",
    "asctime": "strftime", "ctime": "strftime", "strerror_l": "strerror", "setjmp": "a status",
    "longjmp": "a status", "usleep": "nanosleep or an event", "sleep": "an event",
}
BANNED_CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
# Tests may build texts and words of known size with these; programs never do.
BANNED_IN_TESTS = {"gets", "sprintf", "vsprintf", "alloca", "tmpnam", "mktemp", "rand", "srand",
                   "random", "sleep", "usleep", "strtok_r"}
ENDS = re.compile(r"(?<![\w.>])(exit|_exit|_Exit|quick_exit|abort)\s*\(")
# main functions end a process; assert.c ends a broken one; life.c ends a daemon that hangs,
# daemon_link.c a worker, service.c a child whose parent died at its birth.
MAY_END = re.compile(r"(.*/)?(main|engine_main|assert|life|daemon_link|service)\.c")

UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|place" r"holder)\b|\bfor now\b"
                        r"|not (yet )?implemented|\bstub(bed|s)?\b", re.I)
# The tests have a worker without a model, which is called one, and PROTOCOL files may say it.
MAY_SAY_STUB = re.compile(r"(tests/.*|CHANGELOG\.md|ARCHITECTURE\.md|CONTRIBUTING\.md|README\.md"
                          r"|worker/(learn/learner|loop/session)\.h|proto/WORKER\.md|\.ci/.*)")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|farm|root|home/[a-z]\w*)(?:/|\b(?=[\s\"']))")

SOURCES = (".c", ".h", ".cu", ".cuh", ".cc")
COLUMNS = 100
SHELL_COLUMNS = 120  # a command of a script is one line
LINES = 1000


# ---- reading sources -------------------------------------------------------------------------

def blank(match):
    """Keeps the line breaks of the text that is cut out."""
    text = match.group(0)
    if text[0] in "\"'":
        return text[0] + " " * (len(text) - 2) + text[0]
    return re.sub(r"[^\n]", " ", text)


TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


class Source:
    def __init__(self, path):
        self.path = path
        self.text = (ROOT / path).read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.module = path.split("/")[0]
        is_c = path.endswith(SOURCES)
        self.code = TOKENS.sub(blank, self.text).splitlines() if is_c else []

    def calls(self, pattern):
        for number, line in enumerate(self.code, 1):
            for match in pattern.finditer(line):
                yield number, match.group(1)


def tracked_files():
    """The files that git knows, or all files where there is no git (a release archive)."""
    try:
        out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                              "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
        names = [name for name in out.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        names = [str(path) for path in paths
                 if path.parts[0] not in ("build", ".git") and "__pycache__" not in path.parts]
    return sorted(name for name in names if (ROOT / name).is_file())


# ---- rules -----------------------------------------------------------------------------------

def room_of(path):
    """The room that a file lies in; "" outside of sync/, worker/ and daemon/."""
    if path in LENT:
        return LENT[path]
    folders = path.split("/")[:-1]
    while folders and "/".join(folders) not in ROOMS:
        folders.pop()
    return "/".join(folders)


def included(src):
    """(line, path) of every header of ours."""
    for number, line in enumerate(src.lines, 1):
        include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if include:
            yield number, include[1]


def check_rooms(src):
    room = room_of(src.path)
    for number, header in included(src):
        other = room_of(header)
        if room and other and other.split("/")[0] == src.module and \
                other != room and other not in ROOMS[room]:
            yield number, f"{room}/ may not include {other}/: see ROOMS in tests/tidy.py"


def check_folders(paths):
    folders = {}
    for path in paths:
        if path.endswith(SOURCES):
            folders.setdefault(str(pathlib.PurePath(path).parent), []).append(path)
    for folder, files in folders.items():
        if len(files) > FILES:
            yield folder, 0, f"{len(files)} sources, {FILES} are the most in one folder"


def check_order(paths):
    """In an ordered folder no file includes one that leads back to it."""
    for folder in ORDERED:
        arrows = {}
        for path in map(pathlib.PurePath, paths):
            if str(path.parent) == folder and path.suffix in SOURCES:
                heads = {pathlib.PurePath(head) for _, head in included(Source(str(path)))}
                arrows.setdefault(path.stem, set()).update(
                    head.stem for head in heads if str(head.parent) == folder)
        ends = None
        while ends is None or ends:
            ends = {name for name, heads in arrows.items() if not heads & arrows.keys() - {name}}
            arrows = {name: heads for name, heads in arrows.items() if name not in ends}
        if arrows:
            yield folder, 0, f"a circle of includes at or below {', '.join(sorted(arrows))}"


def check_layers(src):
    for number, header in included(src):
        other = header.split("/")[0]
        if "/" not in header and not src.module == "tests":
            yield number, f'include "{header}" by its path from the top'
        if src.path == "kernels/cuda/device.cuh" and header == "tests/emulated/emulated.h":
            continue  # in place of a toolkit's headers, in builds for tests
        if other in LAYERS and other != src.module and other not in LAYERS[src.module]:
            yield number, f"{src.module}/ may not include {other}/: see LAYERS in tests/tidy.py"


def globals_of(src):
    """Declarations of variables that live as long as the program and are not const."""
    depth, statement, start, is_initialiser = 0, "", 0, False
    for number, line in enumerate(src.code, 1):
        if re.match(r"\s*#", line):
            continue
        local = re.match(r"\s+static\s+(?!inline\b)([^=;({]*)[=;]", line)
        if depth > 0 and local and "const" not in local[1]:
            yield number
        for char in line + "\n":
            if char == "{":
                is_initialiser = depth == 0 and "=" in statement or is_initialiser
                depth += 1
            elif char == "}":
                depth -= 1
                if depth == 0 and not is_initialiser and "(" in statement:
                    statement = ""  # the body of a function ended
                continue
            if depth > 0:
                continue
            if char == ";":
                text = statement.strip()
                if text and "(" not in text.split("=")[0] and "const" not in text and \
                        not re.match(r"(typedef|extern|_Static_assert)\b", text) and \
                        not re.match(r"(struct|enum|union)\s*\w*\s*$", text):
                    yield start
                statement, is_initialiser = "", False
                continue
            if not statement.strip():
                start = number
            statement += char


def check_purity(src):
    if src.module not in PURE:
        return
    allowed = IMPURE.get(src.path, set())
    for number, line in enumerate(src.lines, 1):
        include = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if include and include[1] not in PURE_HEADERS | allowed:
            yield number, f"{src.module}/ is pure: <{include[1]}> is not among its headers"
    for number, name in src.calls(IMPURE_CALL):
        if name not in allowed:
            yield number, f"{src.module}/ is pure: no {name}()"
    if "global" not in allowed:
        for number in globals_of(src):
            yield number, f"{src.module}/ is pure: no mutable global state"


def check_floats(src):
    for number, line in enumerate(src.code, 1):
        if src.module == "sync" and FLOATS.search(line):
            yield number, "sync/ has no floats: it decides, the worker computes"
        if AGREED.fullmatch(src.path) and INEXACT.search(line):
            yield number, "all nodes must get the same bits here: no function that libm may round"


def check_calls(src):
    is_test = src.module == "tests"
    for number, name in src.calls(BANNED_CALL):
        if not is_test or name in BANNED_IN_TESTS:
            yield number, f"{name}() is banned: use {BANNED[name]}"
    if not is_test and not MAY_END.fullmatch(src.path):
        for number, name in src.calls(ENDS):
            yield number, f"{name}() belongs to main.c and assert.c: return a status"
    for number, line in enumerate(src.code, 1):
        if re.match(r"\s*typedef\s+(struct|enum|union)\b", line):
            yield number, "no typedef for a struct, enum or union"


def check_head(src):
    first = src.lines[0] if src.lines else ""
    if src.path.endswith(SOURCES):
        own = re.sub(r"\.(c|cu|cc)$", ".h", src.path)
        names_own_header = first == f'#include "{own}"' and (ROOT / own).exists()
        if not first.startswith("/* ") and not names_own_header:
            yield 1, "the first line says what the file is (or includes the header that says it)"
    elif not re.match(r'"""\w', first):
        if not re.match(r"# \w", src.lines[1] if len(src.lines) > 1 else ""):
            yield 2, "the line after #! says what the file is"
    if not src.path.endswith((".h", ".cuh")):
        return
    wanted = "TW_" + re.sub(r"\W", "_", src.path).upper()
    if "/include/" in src.path:  # installed: programs of others include it
        wanted = re.sub(r"\W", "_", src.path.split("/include/")[1]).upper()
    directives = [line for line in src.lines if re.match(r"\s*#", line)][:2]
    if src.module == "tests" and directives and directives[0].startswith("#ifndef TW_"):
        wanted = directives[0].split()[1]  # any name of ours, as nothing outside includes it
    if directives != [f"#ifndef {wanted}", f"#define {wanted}"]:
        yield 1, f"the header guard is {wanted}"


def check_names(src):
    """Names with external linkage start with tw_; those of tests and programs need not."""
    if not src.path.endswith(".h") or src.module == "tests" or \
            src.path.startswith(("daemon/cli/", "worker/cli/engine_verb.h")):
        return
    for number, line in enumerate(src.code, 1):
        match = re.match(r"(?!static|typedef|#|extern \"C\")[a-z_][\w ]*[ *]+(\w+)\s*\(", line)
        if match and not match[1].startswith(("tw_", "TW_", "thinwire_", "_Static_assert")) and \
                not line.startswith("_Static_assert"):
            yield number, f"{match[1]} has external linkage: its name starts with tw_"


def check_form(src):
    columns = COLUMNS if src.path.endswith((*SOURCES, ".py")) else SHELL_COLUMNS
    for number, line in enumerate(src.lines, 1):
        if len(line) > columns:
            yield number, f"{len(line)} columns, {columns} are the most"
        if line != line.rstrip():
            yield number, "space at the end of the line"
    if len(src.lines) > LINES:
        yield LINES + 1, f"{len(src.lines)} lines, {LINES} are the most: one concept a file"


def check_words(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in UNFINISHED.finditer(line):
            if match[0].lower().startswith("stub") and MAY_SAY_STUB.fullmatch(path):
                continue
            yield number, f'"{match[0]}" marks something unfinished'
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"


def check_prose(path, text):
    for number, word in prose.headless_whos(path, text):
        yield number, f'"{word}" without a noun before it: node, peer, member, caller, owner'


def link_lists(path, module):
    """(target, library, line) of every target_link_libraries, PUBLIC or PRIVATE."""
    text = re.sub(r"#[^\n]*", lambda m: " " * len(m[0]), (ROOT / path).read_text(encoding="utf-8"))
    for match in re.finditer(r"\b(target_link_libraries|tw_test|tw_fuzz)\s*\(([^)]*)\)", text):
        words = match[2].split()
        libraries = words[1:]
        if match[1] != "target_link_libraries":
            at = words.index("LIBS") + 1 if "LIBS" in words else len(words)
            libraries = words[at:]
            libraries = libraries[:libraries.index("ARGS")] if "ARGS" in libraries else libraries
        for library in libraries:
            if library not in ("PUBLIC", "PRIVATE", "INTERFACE"):
                yield words[0], library, text.count("\n", 0, match.start()) + 1


def check_links(paths):
    """The link lists of CMake go downward only, and reach outside where the module may."""
    owner, edges, findings = {"tw_flags": "base"}, {}, []
    lists = [path for path in paths if path.endswith("CMakeLists.txt") and "/" in path]
    for path in lists:
        text = (ROOT / path).read_text()
        for match in re.finditer(r"add_library\(\s*((?:tw|thinwire)_\w+)", text):
            owner[match[1]] = path.split("/")[0]
    for path in lists:
        module = path.split("/")[0]
        for target, library, number in link_lists(path, module):
            edges.setdefault(target, set()).add(library)
            other = owner.get(library)
            if library.startswith(("${ARG", "$<")) or library == "tw_kernels_emulated":
                continue
            if other is None and library not in EXTERNAL[module]:
                findings.append((path, number, f"{module}/ may not link {library}"))
            if other not in (None, module) and other not in LAYERS[module] and \
                    library != "tw_flags":
                findings.append((path, number, f"{module}/ may not link {library} of {other}/"))
    reached, open_ends = set(), ["tw_worker_engine"]
    while open_ends:
        library = open_ends.pop()
        if library not in reached:
            reached.add(library)
            open_ends.extend(edges.get(library, ()) if library != "tw_hash" else ("tw_base",))
    for library in sorted(reached - ENGINE):
        findings.append(("worker/engine/CMakeLists.txt", 1,
                         f"tw_worker_engine must build without {library}"))
    return findings


def check_paths_named(paths):
    """Files that a document names, as `sync/node.c` or as the target of a link, are there."""
    there = {str(folder) for path in paths for folder in pathlib.PurePath(path).parents}
    there.update(paths)
    rooms = "|".join([*LAYERS, "tests", "deploy"])
    for path in paths:
        if not path.endswith(".md"):
            continue
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            named = re.findall(rf"`((?:{rooms})/[\w./-]+)`", line)
            named += [os.path.normpath(pathlib.PurePath(path).parent / target)
                      for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line)]
            for name in named:
                if name.rstrip("/") not in there:
                    yield path, number, f"{name} is not in the tree"


# Files of others, and made-up names.
FOREIGN = {"llm.c", "a.b.c", "data_common.py", "tcp.h", "omp.h"}


def check_files_in_comments(paths):
    """Source files that a comment names are in the tree."""
    there = {pathlib.PurePath(path).name for path in paths} | FOREIGN
    for path in paths:
        if not path.endswith((*SOURCES, ".h", ".cuh")):
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        for comment in re.finditer(r"/\*.*?\*/", text, re.S):
            for name in re.findall(r"[\w./-]+\.(?:c|h|cu|cuh|py)\b", comment.group()):
                if pathlib.PurePath(name).name not in there:
                    number = text.count("\n", 0, comment.start()) + 1
                    yield path, number, f"the comment names {name}, which is not in the tree"


def check_archives(build):
    """Nothing in a pure library calls the system, whatever macros and inlines did."""
    if shutil.which("nm") is None:
        return []
    findings = []
    for module, names in PURE_ARCHIVES.items():
        for name in names:
            archive = build / module / f"lib{name}.a"
            if not archive.exists():
                continue
            out = subprocess.run(["nm", "-A", "-u", str(archive)], capture_output=True, text=True,
                                 check=True).stdout
            for line in out.splitlines():
                place, symbol = line.split(": ")[0] if ": " in line else line, line.split()[-1]
                member = place.split(":")[1] if ":" in place else place
                symbol = re.sub(r"^__(\w+)_chk$", r"\1", symbol)  # as _FORTIFY_SOURCE renames it
                allowed = IMPURE.get(f"{module}/{re.sub('[.]o$', '', member)}", set())
                if not PURE_SYMBOLS.fullmatch(symbol) and symbol not in allowed | {"stderr"}:
                    findings.append((f"{module}/{member}", 0, f"{module}/ is pure, {name} calls "
                                                              f"{symbol}"))
    return findings


def check_format(paths):
    """clang-format, where the version that decides is installed."""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        return None, []
    version = re.search(r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True,
                                                         text=True, check=True).stdout)
    if version is None or version[1] != "14":
        return None, []
    files = [path for path in paths if path.endswith(SOURCES)]
    groups = [files[i::16] for i in range(16)]

    def run(group):
        if not group:
            return ""
        return subprocess.run([tool, "--dry-run", "--ferror-limit=1", *group], cwd=ROOT,
                              capture_output=True, text=True, check=False).stderr

    findings = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(run, groups):
            for match in re.finditer(r"^([^\s:]+):(\d+):\d+: \w+: code should be", text, re.M):
                findings.setdefault(match[1], int(match[2]))
    return True, [(path, number, "clang-format -i would change this")
                  for path, number in sorted(findings.items())]


# ---- the graph of rooms ----------------------------------------------------------------------

def rooms_that_include(paths):
    """room -> rooms whose headers it includes; a module without rooms is one."""
    arrows = {}
    for path in paths:
        module = path.split("/")[0]
        if not path.endswith(SOURCES) or module not in LAYERS or module == "tests":
            continue
        room = room_of(path) or module
        for _, header in included(Source(path)):
            other = room_of(header) or header.split("/")[0]
            if other in LAYERS or other in ROOMS:
                arrows.setdefault(room, set()).add(other)
    return arrows


def rooms_that_call(build):
    """room -> {symbol: room that defines it} of every function that it calls: by object file, as
    the libraries of sync/ are of several rooms."""
    defined, wanted = {}, {}
    for archive in sorted(build.rglob("lib*.a")):
        folder = archive.relative_to(build).parent
        if "emulated" in archive.name or "mutants" in archive.name or \
                folder.parts[:1] in ((), ("tests",)) or folder.parts[0] not in LAYERS:
            continue
        objects = archive.parent / "CMakeFiles" / f"{archive.stem[3:]}.dir"
        for path in sorted(objects.rglob("*.o")):
            source = str(folder / path.relative_to(objects))[:-len(".o")]
            if not (ROOT / source).exists() and not (build / source).exists():
                continue  # left over from a source that was moved
            room = room_of(source) or folder.parts[0]
            out = subprocess.run(["nm", "-g", str(path)], capture_output=True, text=True,
                                 check=True).stdout
            for kind, symbol in re.findall(r"\b([A-Z]) (\w+)$", out, re.M):
                if kind == "U":
                    wanted.setdefault(room, set()).add(symbol)
                elif kind in "TDBR":
                    defined.setdefault(symbol, room)
    return {room: {symbol: defined[symbol] for symbol in symbols if symbol in defined}
            for room, symbols in wanted.items()}


def is_declared_by(room, symbol):
    """Whether a header of the room declares the symbol, which a wing may define."""
    return any(re.search(rf"\b{symbol}\(", header.read_text(encoding="utf-8"))
               for header in (ROOT / room).glob("*.h"))


def check_room_calls(build):
    """No room calls one that it may not include, by whatever declaration."""
    findings = []
    if shutil.which("nm") is None:
        return findings
    for room, calls in sorted(rooms_that_call(build).items()):
        for symbol, other in sorted(calls.items()):
            if other in WINGS and is_declared_by(WINGS[other], symbol):
                other = WINGS[other]
            if room in ROOMS and other in ROOMS and other != room and \
                    other.split("/")[0] == room.split("/")[0] and other not in ROOMS[room]:
                findings.append((f"{room}/", 0, f"{room}/ may not call {symbol} of {other}/: "
                                                "see ROOMS in tests/tidy.py"))
    return findings


def find_circle(arrows):
    """Rooms that form a circle, or None. A wing counts as the room that it is in."""
    graph = {}
    for room, others in arrows.items():
        room = WINGS.get(room, room)
        graph.setdefault(room, set()).update({WINGS.get(other, other) for other in others} - {room})
    left = set(graph)
    while True:
        free = {room for room in left if not graph[room] & left}
        if not free:
            return sorted(left) or None
        left -= free


def print_rooms(paths, build):
    is_round = False
    graphs = [("includes", rooms_that_include(paths))]
    if build is not None:
        graphs.append(("calls", {room: set(calls.values())
                                 for room, calls in rooms_that_call(build).items()}))
    for verb, arrows in graphs:
        count = 0
        for room in sorted(arrows):
            others = sorted(arrows[room] - {room})
            count += len(others)
            print(f"{room} {verb} {' '.join(others) or 'nothing of ours'}")
        circle = find_circle(arrows)
        is_round = is_round or circle is not None
        print(f"{verb}: {len(arrows)} rooms, {count} arrows, "
              f"{'a circle of ' + ', '.join(circle) if circle else 'no circle'}\n")
    return 1 if is_round else 0


def main():
    paths = tracked_files()
    if "--rooms" in sys.argv[1:]:
        build = [pathlib.Path(arg) for arg in sys.argv[1:] if arg != "--rooms"]
        return print_rooms(paths, build[0] if build else None)
    findings, whats = [], 0
    for path in paths:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # corpus files
        if path.startswith(("tests/fuzz/corpus/", "LICENSE")):
            continue
        findings += [(path, *found) for found in check_words(path, text)]
        if not path.startswith("tests/golden/"):
            findings += [(path, *found) for found in check_prose(path, text)]
            whats += prose.count_whats(path, text)
        src = None
        if path.endswith(SOURCES) and path.split("/")[0] in LAYERS:
            src = Source(path)
            for rule in (check_layers, check_rooms, check_purity, check_floats, check_calls,
                         check_head, check_names, check_form):
                findings += [(path, *found) for found in rule(src)]
        elif path.endswith((".py", ".sh")) or text.startswith("#!"):
            src = Source(path)
            findings += [(path, *found) for rule in (check_head, check_form) for found in rule(src)]
    if whats != prose.WHATS:
        findings.append(("tests/prose.py", 1, f'"what" {whats} times outside of questions, WHATS = '
                                              f"{prose.WHATS}: a statement names the noun"))
    findings += check_links(paths)
    findings += check_paths_named(paths)
    findings += check_files_in_comments(paths)
    findings += check_folders(paths)
    findings += check_order(paths)
    if len(sys.argv) > 1:
        findings += check_archives(pathlib.Path(sys.argv[1]))
        findings += check_room_calls(pathlib.Path(sys.argv[1]))
    is_checked, format_findings = check_format(paths)
    findings += format_findings
    for path, number, sentence in findings:
        print(f"{path}:{number}: {sentence}")
    how = "" if is_checked else "; clang-format 14 is not here, so the format was not looked at"
    print(f"{len(paths)} files, {len(findings)} findings{how}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

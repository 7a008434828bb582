#!/usr/bin/env python3
# compare.py - our tokens and speed compared with the `tokenizers` package, on the same text.
#
#   compare.py BENCH [--out DIR] [--mb 10] [--vocab 32000] [--layouts gpt2,llama3,qwen2,smollm]
#              [--no-wild]
#
# BENCH is thinwire-tokenizer-bench. Trains a tokenizer of each layout on mixed text of this machine
# (the King James bible, translations of programs, C and Python). Encodes that text and a wild one
# (all characters, emoji, invalid UTF-8) with both, and prints one line each. Exit status 1 if any
# token differs. DIR keeps the tokenizers for the next run. Needs the package `tokenizers`; both
# sides use one thread.
"""Compares Thinwire's tokenizer with the package `tokenizers`."""
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse
import array
import gettext
import glob
import json
import pathlib
import random
import struct
import subprocess
import sys
import time
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import layouts  # noqa: E402
import tokenizers  # noqa: E402

DOCUMENT_BYTES = 8000
NFC = tokenizers.normalizers.NFC()
SPACES = " \t\n\r\u00a0\u2028\u180e\u3000\u200b\u0085"
EMOJI = ("\U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA"
         "\U0001F44D\U0001F3FD")


# ---- text ------------------------------------------------------------------------------------

def bible():
    out = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, check=False)
    return out.stdout.decode("utf-8", "replace")


def translations(room):
    """Sentences in many languages and scripts, from the catalogues of installed programs."""
    parts, size = [], 0
    paths = sorted(glob.glob("/usr/share/locale/*/LC_MESSAGES/*.mo"))
    random.Random(2).shuffle(paths)
    for path in paths:
        try:
            with open(path, "rb") as file:
                catalogue = gettext.GNUTranslations(file)
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        text = "\n".join(str(value) for value in catalogue._catalog.values())[:60000]
        parts.append(text)
        size += len(text.encode("utf-8", "replace"))
        if size > room:
            break
    return "\n\n".join(parts)


def sources(pattern, room):
    parts, size = [], 0
    paths = sorted(glob.glob(pattern, recursive=True))
    random.Random(3).shuffle(paths)
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="ignore")[:50000]
        parts.append(text)
        size += len(text)
        if size > room:
            break
    return "\n".join(parts)


def cut(text):
    """Documents of some kilobytes, cut at lines."""
    documents, lines, size = [], [], 0
    for line in text.encode("utf-8", "ignore").splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size > DOCUMENT_BYTES:
            documents.append(b"".join(lines))
            lines, size = [], 0
    return documents + ([b"".join(lines)] if lines else [])


def mixed(mb):
    room = mb * 1_000_000 // 4
    documents = []
    for text in (bible(), translations(room), sources("/usr/include/**/*.h", room),
                 sources("/usr/lib/python3/**/*.py", room)):
        documents += cut(text[:room])
    random.Random(1).shuffle(documents)
    return documents


def is_known(code):
    """Assigned in Python's Unicode version and in the package's older one."""
    char = chr(code)
    if unicodedata.category(char) in ("Cn", "Cs"):
        return False
    texts = (char, f"a\u0315{char}\u0316", f"a{char}\u0334\u0315")
    return all(NFC.normalize_str(text) == unicodedata.normalize("NFC", text) for text in texts)


def wild_document(rng, codes, tokens):
    text = []
    for _ in range(rng.randrange(1, 60)):
        kind = rng.randrange(12)
        if kind == 0:
            text.append(rng.choice(tokens))
        elif kind == 1:
            text.append(rng.choice(SPACES) * rng.randrange(1, 9))
        elif kind == 2:
            text.append(EMOJI)
        elif kind == 3:
            text.append(unicodedata.normalize("NFD", "Việt ångström 각하 ガギ नमस्ते"))
        elif kind == 4:
            text.append(rng.choice(["it's", "IT'S", "we'LL", "don't", "'Re", "'\u017f", "x'd y"]))
        elif kind == 5:
            text.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind == 6:
            text.append(chr(rng.choice([97, 0x20, 0x4E00, 0x301])) * rng.randrange(1, 3000))
        else:
            first = rng.randrange(len(codes))
            pool = codes[first:first + 60]
            text.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 40))))
    data = "".join(text).encode()
    if rng.randrange(2):  # bytes that are no character
        data = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            data.insert(rng.randrange(len(data) + 1),
                        rng.choice([0x80, 0xC0, 0xE2, 0xED, 0xF0, 0xFF]))
            if data and rng.randrange(2):
                del data[rng.randrange(len(data))]
    return bytes(data)


def wild(mb, tokens):
    rng = random.Random(4)
    codes = [chr(code) for code in range(0x110000) if is_known(code)]
    documents, size = [], 0
    while size < mb * 1_000_000:
        documents.append(wild_document(rng, codes, tokens))
        size += len(documents[-1])
    return documents


# ---- the two sides ---------------------------------------------------------------------------

def stretches(data):
    """Valid text (str), and single bytes that are no part of a character (int)."""
    while data:
        try:
            yield data.decode()
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[:error.start].decode()
            yield from data[error.start:error.end]
            data = data[error.end:]


def byte_tokens(tok):
    alphabet = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None
                for b in range(256)]
    code = 256
    for b in range(256):
        if alphabet[b] is None:
            alphabet[b] = chr(code)
            code += 1
    return [tok.token_to_id(char) for char in alphabet]


def encode(tok, singles, data):
    ids = []
    for part in stretches(data):
        ids += [singles[part]] if isinstance(part, int) else \
            tok.encode(part, add_special_tokens=False).ids
    return ids


def theirs(tok, documents):
    """Tokens of each document, and MB/s, the best of three for valid text."""
    singles, best = byte_tokens(tok), 1e9
    try:
        texts = [document.decode() for document in documents]
    except UnicodeDecodeError:
        return [encode(tok, singles, document) for document in documents], 0.0
    for _ in range(3):
        start = time.perf_counter()
        for text in texts:
            tok.encode_batch_fast([text], add_special_tokens=False)
        best = min(best, time.perf_counter() - start)
    return [encode(tok, singles, document) for document in documents], \
        sum(map(len, documents)) / 1e6 / best


def ours(bench, tokenizer, documents, out):
    path, ids_path = out / "documents", out / "ids"
    path.write_bytes(b"".join(struct.pack("<I", len(d)) + d for d in documents))
    run = subprocess.run([bench, str(tokenizer), str(path), str(ids_path)], capture_output=True,
                         text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    words, ids, at = array.array("I", ids_path.read_bytes()), [], 0
    while at < len(words):
        ids.append(words[at + 1:at + 1 + words[at]].tolist())
        at += 1 + words[at]
    return ids, json.loads(run.stdout)


def show_difference(tok, document, mine, other):
    at = min(len(mine), len(other))
    at = next((i for i, (a, b) in enumerate(zip(mine, other)) if a != b), at)
    print("   ours  ", [tok.id_to_token(i) for i in mine[max(0, at - 3):at + 5]])
    print("   theirs", [tok.id_to_token(i) for i in other[max(0, at - 3):at + 5]], flush=True)


def compare(bench, path, tok, documents, out):
    mine, said = ours(bench, path, documents, out)
    other, speed = theirs(tok, documents)
    different = [i for i, (a, b) in enumerate(zip(mine, other)) if a != b]
    size = sum(map(len, documents)) / 1e6
    speed = f", theirs {speed:.2f} MB/s, {said['mb_per_s'] / speed:.1f} times" if speed else ""
    back = f"{said['changed']} do not come back{'' if said['is_exact'] else ' (not exact)'}"
    print(f"{size:6.1f} MB, {said['tokens']} tokens: {len(different)} of {len(documents)} "
          f"documents differ, {back}; ours {said['mb_per_s']:.1f} MB/s{speed}; "
          f"load {said['load_s']:.2f} s", flush=True)
    for i in different[:3]:
        show_difference(tok, documents[i], mine[i], other[i])
    return bool(different) or (said["is_exact"] and said["changed"] > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/tokenizer"))
    parser.add_argument("--mb", type=int, default=10)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--layouts", default=",".join(layouts.LAYOUTS))
    parser.add_argument("--no-wild", action="store_true", help="mixed text alone")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print(f"tokenizers {tokenizers.__version__}, vocabulary {args.vocab}")
    documents, bad = mixed(args.mb), False
    for name in args.layouts.split(","):
        path = args.out / f"{name}.{args.vocab}.json"
        if not path.exists():
            texts = [document.decode() for document in documents]
            layouts.train(name, texts, args.vocab).save(str(path))
        tok = tokenizers.Tokenizer.from_file(str(path))
        tokens = [token.content for token in tok.get_added_tokens_decoder().values()]
        print(f"{name:7} mixed", end=" ")
        bad |= compare(args.bench, path, tok, documents, args.out)
        if args.no_wild:
            continue
        print(f"{name:7} wild ", end=" ")
        bad |= compare(args.bench, path, tok, wild(args.mb, tokens), args.out)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

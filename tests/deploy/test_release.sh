#!/usr/bin/env bash
# test_release.sh - deploy/release: sources with the same bytes from two clones, signed sums; deploy/sbom.
#   test_release.sh REPOSITORY BIN     BIN: the folder of the programs
# tests/packages builds all of a release twice.
set -euo pipefail
programs=$(realpath "$2")
cd "$1"
for tool in git ssh-keygen xz; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
export XZ_OPT=-0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
fact() { # SENTENCE COMMAND...
    local sentence=$1
    shift
    "$@" || { echo "FAIL $sentence"; bad=1; }
}
not() { ! "$@"; }

# A repository of its own with a part of the files, as they are here, and a clone under another umask.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$folder
for who in AUTHOR COMMITTER; do
    export GIT_${who}_NAME=test GIT_${who}_EMAIL=test@localhost "GIT_${who}_DATE=@1700000000 +0000"
done
commit() { # FOLDER
    git -C "$1" init -q && git -C "$1" add -A && git -C "$1" commit -qm test
}
mkdir "$folder/one"
cp -r deploy CMakeLists.txt CMakePresets.json LICENSE README.md "$folder/one"
commit "$folder/one"
(umask 077 && git clone -q "$folder/one" "$folder/a longer path")

(cd "$folder/one" && deploy/release "$folder/out" source >/dev/null)
(cd "$folder/a longer path" && echo more >>README.md && umask 077 &&
    deploy/release "$folder/again" source >/dev/null 2>"$folder/said")
fact "two clones give the same archive" cmp "$folder"/{out,again}/thinwire-*.tar.xz
fact "a change that is not committed is named" grep -q 'not committed' "$folder/said"
archive=$(echo "$folder"/out/thinwire-*.tar.xz)
name=$(basename "$archive" .tar.xz)
tar -tf "$archive" | grep -v '/$' | sed "s#^$name/##" | sort >"$folder/packed"
git -C "$folder/one" ls-files | sort >"$folder/known"
fact "it has every file, in one folder" cmp "$folder/packed" "$folder/known"
mkdir "$folder/bare"
tar -x -C "$folder/bare" -f "$archive"
fact "without a commit there is no release" not "$folder/bare/$name/deploy/release" "$folder/none" 2>"$folder/said"
fact "and it says why" grep -q 'made from a commit' "$folder/said"

ssh-keygen -q -t ed25519 -N '' -C test -f "$folder/key"
echo "releases $(cat "$folder/key.pub")" >"$folder/signers"
(cd "$folder/one" && deploy/release "$folder/out" --key "$folder/key" sums >/dev/null 2>&1)
cd "$folder/out"
verify() {
    ssh-keygen -q -Y verify -f "$folder/signers" -I releases -n file -s SHA256SUMS.sig <SHA256SUMS \
        >/dev/null 2>&1
}
fact "the signature is true" verify
fact "and the sums" sha256sum --quiet -c SHA256SUMS
echo >>SHA256SUMS
fact "another list is not signed" not verify

mkdir "$folder/bin"
cp "$programs"/thinwire{,d,-worker,-engine} "$folder/bin"
export SOURCE_DATE_EPOCH=1700000000
"$folder/one/deploy/sbom" "$folder/bin" 1.0 >"$folder/parts.json"
"$folder/one/deploy/sbom" "$folder/bin" 1.0 >"$folder/parts2.json"
fact "the list of parts has the same bytes again" cmp "$folder"/parts{,2}.json
fact "it is sound" python3 - "$folder/parts.json" <<'PYTHON'
import json
import sys
parts = json.load(open(sys.argv[1]))
ids = [package["SPDXID"] for package in parts["packages"]] + [parts["SPDXID"]]
assert parts["spdxVersion"] == "SPDX-2.3" and parts["dataLicense"] == "CC0-1.0"
assert parts["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
assert len(ids) == len(set(ids)), "an id twice"
for relation in parts["relationships"]:
    assert relation["spdxElementId"] in ids and relation["relatedSpdxElement"] in ids, relation
contained = [r for r in parts["relationships"] if r["relationshipType"] == "CONTAINS"]
assert len(contained) == 4, contained
files = " ".join(package.get("comment", "") for package in parts["packages"])
for library in ("libuv.so", "libcrypto.so", "libzstd.so", "libc.so.6"):
    assert library in files, library
PYTHON
[ $bad -eq 0 ] && echo "sources, sums, signature and the list of parts are sound"
exit $bad

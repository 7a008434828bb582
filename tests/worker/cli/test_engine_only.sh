#!/usr/bin/env bash
# The engine alone (-DTW_ENGINE_ONLY=ON) on a machine without one library of deploy/libraries.cmake.
#   test_engine_only.sh SOURCE configure   all that the engine links is in the build
#   test_engine_only.sh SOURCE build       it builds, trains, and names the libraries it lacks
set -euo pipefail
source=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/no-libraries"
export PKG_CONFIG_LIBDIR=$place/no-libraries PKG_CONFIG_PATH=

fail() { echo "$1" >&2; exit 1; }

cmake -S "$source" -B "$place/build" -G Ninja -DTW_ENGINE_ONLY=ON -DTW_CUDA=OFF >"$place/log" 2>&1 ||
    { cat "$place/log" >&2; fail "cannot be configured"; }
# A library of ours that this build does not have becomes an option of the linker.
if grep -oE -- '-ltw_[a-z_]+' "$place/build/build.ninja" | sort -u >"$place/missing"; then
    fail "linked, but not built: $(tr '\n' ' ' <"$place/missing")"
fi
[ "$2" = build ] || exit 0

cmake --build "$place/build" >"$place/log" 2>&1 || { tail -20 "$place/log" >&2; fail "cannot be built"; }
cd "$place"
engine=$place/build/bin/thinwire-engine
"$engine" models >models.log
grep -q '^1m ' models.log || fail "models: 1m is missing"
printf '%.0sIn the beginning there was one machine.\n' $(seq 2000) >text.txt
"$engine" train --run "$source/tests/golden/run.manifest" --data text.txt --steps 2 \
    --out w.safetensors >train.log 2>&1 || {
    cat train.log >&2
    fail "cannot train"
}
[ -s w.safetensors ] || fail "train left no weights"
if "$engine" data prepare text.txt --out d >prepare.log 2>&1; then
    fail "prepared without its libraries"
fi
grep -q 'built without zlib, zstd, jansson' prepare.log || { cat prepare.log >&2; fail "prepare: not named"; }

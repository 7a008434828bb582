#!/usr/bin/env bash
# test_libraries - a configuration without a single library names each one with its packages.
#   test_libraries.sh REPOSITORY CC
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
headers=() # of libraries that pkg-config does not know
while read -r name module _; do
    [ "${module%.h}" = "$module" ] || headers+=("-D${name}_HEADERS=")
done < <(sed -n 's/^tw_library(\(.*\))$/\1/p' "$1/deploy/libraries.cmake")
PKG_CONFIG_LIBDIR=$folder PKG_CONFIG_PATH='' cmake -S "$1" -B "$folder/build" -G Ninja -DTW_CUDA=OFF \
    -DCMAKE_C_COMPILER="$2" "${headers[@]}" >"$folder/said" 2>&1 || status=$?
[ $status -ne 0 ] || { echo "it configured without libraries"; exit 1; }

bad=0 count=0
while read -r _ module debian fedora arch; do
    line="missing: $module (Debian, Ubuntu: $debian; Fedora: $fedora; Arch: $arch)"
    grep -qxF "$line" "$folder/said" || { echo "no line: $line"; bad=1; }
    count=$((count + 1))
done < <(sed -n 's/^tw_library(\(.*\))$/\1/p' "$1/deploy/libraries.cmake")
[ "$count" -gt 9 ] || { echo "deploy/libraries.cmake has only $count rows"; bad=1; }
[ $bad -eq 0 ] && echo "$count missing libraries, a line each" || cat "$folder/said"
exit $bad

#!/usr/bin/env bash
# test_debian.sh - deploy/debian names the libraries of CMake and the library's functions, its scripts are
# sound, and the units' sandbox is tight. SOURCE: the repository.
# test_package_lists.py compares its lists of files; tests/packages builds and uses the packages.
set -euo pipefail
cd "$1"
failures=0
fail() { echo "FAIL: $1"; failures=$((failures + 1)); }

control=$(tr ',\n' '  ' <deploy/debian/control)
libraries=$(sed -n 's/^tw_library(\(.*\))$/\1/p' deploy/libraries.cmake | awk '{ print $3 }')
[ "$(wc -w <<<"$libraries")" -ge 10 ] || fail "deploy/libraries.cmake has changed its form"
for package in $libraries protobuf-c-compiler; do
    grep -q " $package " <<<"$control" || fail "debian/control: Build-Depends lacks $package"
done

version=$(sed -n 's/^project(thinwire VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
head -1 deploy/debian/changelog | grep -qF "thinwire ($version)" ||
    fail "debian/changelog is not of version $version"

for script in postinst prerm postrm; do
    sh -n "deploy/debian/programs.$script" || fail "programs.$script"
    grep -q '^#DEBHELPER#$' "deploy/debian/programs.$script" || fail "programs.$script: no #DEBHELPER#"
done

exported=$(grep -oE '\bthinwire_worker_[a-z_]+\(' worker/lib/include/thinwire/worker.h | tr -d '(' | sort -u)
listed=$(sed -n 's/^ \(thinwire_[a-z_]*\)@Base.*/\1/p' deploy/debian/libthinwire1.symbols | sort -u)
[ "$exported" = "$listed" ] || fail "libthinwire1.symbols differs from thinwire/worker.h"

# The sandbox of the units. The analysis wants a unit with a name of its own (systemd 250 or later).
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if systemd-analyze security --help 2>/dev/null | grep -q -- --threshold; then
    for unit in thinwired thinwire-worker; do
        cp "deploy/systemd/$unit@.service" "$folder/$unit@x.service"
        systemd-analyze security --no-pager --offline=true --threshold=15 "$folder/$unit@x.service" \
            >"$folder/said" 2>&1 || fail "exposure over 1.5: $(tail -1 "$folder/said")"
    done
fi
# A purge empties a state folder that is a mount point, and takes away the links of the units.
purge() {
    local root=$folder/root
    mkdir -p "$root"/{etc/thinwire,etc/systemd/system/multi-user.target.wants,var/lib/thinwire}
    mount -t tmpfs tmpfs "$root/var/lib/thinwire"
    mkdir "$root/var/lib/thinwire/bible"
    touch "$root/var/lib/thinwire/bible/ckpt" "$root/etc/thinwire/bible.conf"
    ln -s /nowhere "$root/etc/systemd/system/multi-user.target.wants/thinwired@bible.service"
    sed -E "s#(^|[ '])/(etc|var|run|usr)/#\1$root/\2/#g" deploy/debian/programs.postrm >"$folder/postrm"
    sh "$folder/postrm" purge || fail "a purge with a mounted state folder ends with $?"
    [ -z "$(find "$root" -name '*bible*' -print)" ] || fail "left by a purge: $(find "$root" -name '*bible*')"
    [ ! -e "$root/etc/thinwire" ] || fail "a purge leaves the configuration"
}
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    export -f purge fail && export folder failures
    unshare --mount --propagation private bash -euc 'purge; exit $failures' || failures=$((failures + 1))
fi
[ $failures -eq 0 ]

#!/usr/bin/env bash
# systemd-analyze accepts the units. BIN: folder of the built programs, UNITS: deploy/systemd.
set -euo pipefail
BIN=$1
UNITS=$2
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed: skipped"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for unit in thinwired@ thinwire-worker@; do
    sed -E "s#^(ExecStart|ExecReload)=/usr/bin/#\1=$BIN/#" "$UNITS/$unit.service" >"$folder/$unit.service"
done
cp "$folder/thinwired@.service" "$folder/thinwired@test.service"
cp "$folder/thinwire-worker@.service" "$folder/thinwire-worker@test.service"
found=$(SYSTEMD_UNIT_PATH=$folder: systemd-analyze verify --man=no "$folder/thinwired@test.service" \
    "$folder/thinwire-worker@test.service" 2>&1) || { echo "$found"; exit 1; }
# Members of api.group reach the API socket, and the worker reaches its own socket by its group. Its
# user is another one, so that it reads no keys.
grep -qx "RuntimeDirectoryMode=0755" "$UNITS/thinwired@.service"
value() { sed -n "s/^$1=//p" "$UNITS/$2.service"; }
[ "$(value Group thinwired@)" = "$(value Group thinwire-worker@)" ]
[ "$(value User thinwired@)" = thinwire ]
[ "$(value User thinwire-worker@)" = thinwire-worker ]
[ "$(value UMask thinwired@)" = 0077 ]
[ "$(value StateDirectoryMode thinwired@)" = 0700 ]
# Findings about other units of the machine do not count.
if grep -E "thinwire" <<<"$found"; then exit 1; fi
# The check can fail: a wrong unit is found.
sed -i 's/^Type=notify/Type=notifi/' "$folder/thinwired@test.service"
found=$(SYSTEMD_UNIT_PATH=$folder: systemd-analyze verify --man=no "$folder/thinwired@test.service" 2>&1) || true
grep -q "notifi" <<<"$found"
echo "units accepted"

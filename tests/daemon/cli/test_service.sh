#!/usr/bin/env bash
# test_service.sh BIN - `thinwire` on a node that systemd runs: its files belong to the service's user. Each
# command is typed by root, by that user and by another one, and the advice of a message is followed.
# /etc, /var/lib/thinwire and /run/thinwire are the test's own, in a mount namespace. Wants root.
set -euo pipefail
BIN=$1
if [[ ${2:-} != inside ]]; then
    [[ $(id -u) -eq 0 ]] || { echo "skipped: wants root"; exit 77; }
    unshare --mount true 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }
    home=$(mktemp -d /tmp/tw_service_XXXXXX)
    trap 'rm -rf "$home"' EXIT
    unshare --mount --propagation private bash "$0" "$BIN" inside "$home"
    exit
fi
home=$3
export LC_ALL=C.UTF-8 COLUMNS=160
unset THINWIRE_CONFIG SUDO_USER
chmod 755 "$home"
failures=0
daemon=
trap '[[ -z $daemon ]] || kill $daemon || true' EXIT

# -- a machine with the package, the programs where every user may run them
mkdir "$home/bin" "$home/place" "$home/text" "$home/secret"
cp -a /etc "$home/etc"
mkdir -p "$home/etc/thinwire"
cat >>"$home/etc/passwd" <<'PASSWD'
thinwire:x:8991:8991::/nowhere:/usr/sbin/nologin
thinwire-worker:x:8992:8991::/nowhere:/usr/sbin/nologin
ann:x:8993:8993::/nowhere:/bin/sh
PASSWD
printf 'thinwire:x:8991:\nann:x:8993:\n' >>"$home/etc/group"
mount --bind "$home/etc" /etc
for place in /var/lib/thinwire /run/thinwire; do
    if [[ ! -d $place ]]; then # in a folder of the namespace, so that none is left behind
        mount -t tmpfs -o mode=755 tmpfs "${place%/thinwire}"
        mkdir -p $place
    fi
    mount -t tmpfs -o mode=755 tmpfs $place
done
for program in thinwire thinwired thinwire-engine; do
    [[ ! -e $BIN/$program ]] || cp "$BIN/$program" "$home/bin"
done
# systemd itself is not here: a stand-in that refuses users other than root, as polkit does. It starts the
# daemon where the file `works` is.
cat >"$home/place/systemctl" <<SCRIPT
#!/bin/sh
echo "\$*" >>/run/thinwire/asked 2>/dev/null
[ "\$1" = cat ] && exit 0
[ "\$(id -u)" = 0 ] || { echo "Failed to enable unit: Access denied" >&2; exit 1; }
[ -e "$home/works" ] || { echo "Job for thinwired@bible failed." >&2; exit 1; }
case "\$*" in *is-enabled* | *disable*) exit 1 ;; esac
setpriv --reuid thinwire --regid thinwire --init-groups thinwired --config bible 2>"$home/log" </dev/null >&2 &
echo \$! >"$home/pid"
for _ in \$(seq 600); do thinwire --config bible status >/dev/null 2>&1 && exit; sleep 0.1; done
exit 1
SCRIPT
printf '#!/bin/sh\necho "level=info ev=ended exit=0"\necho "thinwired: the reason in the journal"\n' \
    >"$home/place/journalctl"
chmod 755 "$home"/place/*
export PATH=$home/bin:$home/place:$PATH
yes 'And it came to pass in those days that there went out a decree.' | head -c 40000 >"$home/text/text" || true

as() { local user=$1; shift; setpriv --reuid "$user" --regid "$user" --init-groups "$@"; }
# expect STATUS PATTERN COMMAND...: both outputs together match, and the status is that.
expect() {
    local status=$1 pattern=$2 rc=0 out
    shift 2
    out=$("$@" 2>&1 </dev/null) || rc=$?
    if [[ $rc -ne $status ]] || ! grep -qE -- "$pattern" <<<"$out"; then
        echo "FAIL: $*: status $rc (wanted $status), wanted /$pattern/, got:"
        sed 's/^/    /' <<<"$out"
        failures=$((failures + 1))
    fi
    if grep -qE 'chown (0|root)' <<<"$out"; then
        echo "FAIL: $*: advises to give a file to root"
        failures=$((failures + 1))
    fi
}
# follow BEGIN COMMAND...: root types the command in the backquotes of a message of the program, which helps.
# BEGIN is the beginning of the message (test_advice.py counts it as run).
follow() {
    local out advice
    shift
    out=$("$@" 2>&1 </dev/null) || true
    advice=$(grep -oE '`(sudo )?(thinwire|chown|chmod) [^`]*`' <<<"$out" | tail -1 | tr -d '`')
    [[ -n $advice ]] || { echo "FAIL: $*: no advice in: $out"; failures=$((failures + 1)); return; }
    bash -c "${advice#sudo }" >"$home/followed" 2>&1 ||
        { echo "FAIL: $*: $advice: $(cat "$home/followed")"; failures=$((failures + 1)); }
}
# A daemon that systemd's stand-in started ends.
end_service() { kill "$(cat "$home/pid")" && while kill -0 "$(cat "$home/pid")" 2>/dev/null; do sleep 0.1; done; }
is() { [[ $1 == "$2" ]] || { echo "FAIL: got '$1', wanted '$2'"; failures=$((failures + 1)); }; }

# -- a new node: its files belong to the service's user, and the next steps fit it
thinwire run new bible --data "$home/text/text" --set train.tokens=50k --set security.admission=secret \
    --out /etc/bible.manifest >/dev/null
expect 0 '^    thinwire --config bible start$' thinwire --config bible init --run /etc/bible.manifest \
    --data "$home/text/text" --listen 127.0.0.1:0 --upload 5mbit
expect 2 'exists and is not overwritten.*`thinwire --config bible config check` and `thinwire --config bible start`' \
    thinwire --config bible init
state=/var/lib/thinwire/bible
is "$(stat -c %U $state $state/identity.key $state/run.secret | tr '\n' ' ')" "thinwire thinwire thinwire "
mkdir /run/thinwire/bible && chown thinwire: /run/thinwire/bible
setpriv --reuid thinwire --regid thinwire --init-groups thinwired --config bible 2>"$home/log" &
daemon=$!
for _ in $(seq 600); do
    thinwire --config bible status >/dev/null 2>&1 && break
    kill -0 $daemon || { cat "$home/log"; exit 1; }
    sleep 0.1
done

# -- root and the service's user see a healthy node
for user in root thinwire; do
    expect 0 ' 0 failures' as $user thinwire --config bible doctor
    expect 0 'OK +identity' as $user thinwire --config bible doctor
    expect 0 'The daemon can start' as $user thinwire --config bible config check
    expect 0 'thinwire --config bible doctor. does' as $user thinwire --config bible config check
    expect 0 'in use, and accepted' as $user thinwire --config bible secret
    expect 0 'no generation' as $user thinwire --config bible rollback
done
# -- the only node is found, also when sudo has dropped the environment
expect 0 'bible|waits for its worker|no worker is attached' env -u THINWIRE_CONFIG thinwire status
expect 0 '^OK +config +/etc/thinwire/bible.conf' thinwire doctor
# -- a cap until the next start ends earlier by off, and the configured one applies again
expect 0 'cap 5 Mbit/s' thinwire status
expect 0 '^upload: 2mbit, download: 2mbit, until the daemon starts anew$' thinwire limit 2mbit
expect 0 'cap 2 Mbit/s.*cap 2 Mbit/s' thinwire status
expect 0 '^upload: 5mbit as configured, download: 2mbit until the daemon starts anew$' thinwire limit upload off
expect 0 '^upload: 5mbit, download: no cap, as configured$' thinwire limit off
expect 0 '^upload: no cap, download: no cap, until the daemon starts anew$' thinwire limit 0
expect 0 '^upload: 5mbit, download: no cap, as configured$' thinwire limit off
# -- another user is told the command, in which nothing is left to fill in
expect 1 'sudo thinwire --config bible doctor`' as ann thinwire --config bible doctor
expect 1 'belong to user thinwire, and this is user ann' as ann thinwire doctor
expect 1 '^thinwire: the files of this node' as ann thinwire doctor
expect 5 'use `sudo thinwire --config bible config check`' as ann thinwire config check
expect 5 'use `sudo thinwire --config bible secret add /dev/null`' as ann thinwire secret add /dev/null
expect 5 'use `sudo thinwire --config bible rollback pinned`' as ann thinwire --config bible rollback pinned
expect 1 'bible: Permission denied: a node.s files are its user.s; use sudo' as ann thinwire generate
expect 8 '`sudo thinwire --config bible checkpoint`' as ann thinwire checkpoint
follow 'the files of this node belong to user' as ann thinwire config check
follow 'you may not open %s: %s' as ann thinwire reload
is "$({ as ann thinwire checkpoint || true; } 2>&1 | grep -c 'may look without sudo')" 0
expect 2 'only root makes a service.*: use sudo, or --dir FOLDER' as ann thinwire --config other join --start
expect 5 "replay: $state: Permission denied; use sudo" as ann thinwire replay
# -- or the group that may look, with the command that helps after the next login
expect 8 'members of group thinwire may look without sudo: `sudo usermod -aG thinwire \$USER`' \
    as ann thinwire status
# follow 'you may not open %s: %s; members of group' by hand: another user types it
join=$({ as ann thinwire status || true; } 2>&1 | grep -oE '`sudo usermod [^`]*`' | tr -d '`')
USER=ann bash -c "${join#sudo }"
expect 0 'bible|waits for its worker|no worker is attached' as ann thinwire status
expect 0 '^    sudo thinwire --config bible join --start$' thinwire invite
# -- root changes files of the node, which stay its user's; the file that root names may be root's alone
chmod 700 "$home/secret"
openssl rand -hex 32 >"$home/secret/new"
expect 0 'accepted' thinwire --config bible secret add "$home/secret/new"
is "$(stat -c %U $state/run.secret)" thinwire
# -- nobody starts a second daemon as root, which would leave files of root
kill $daemon && wait $daemon || true
daemon=
expect 5 'belongs to user thinwire, and this is root' thinwired --config bible
is "$(find $state -user root)" ""
expect 1 '`thinwire --config bible start`, when all' sh -c 'thinwire doctor; false'
touch "$home/works"
follow 'the state folder %.100s belongs to user' thinwired --config bible
expect 0 'bible|waits for its worker|no worker is attached' thinwire status
end_service
follow 'only root starts the service %s:' as ann thinwire start
expect 0 'bible|waits for its worker|no worker is attached' thinwire status
end_service
rm "$home/works"
# -- start names the reason
expect 1 'only root starts the service thinwired@bible: `sudo thinwire --config bible start`' \
    as ann thinwire start
refused=$({ as ann thinwire start || true; } 2>&1)
is "$(grep -c 'Failed to enable' <<<"$refused")" 0
rm -f /run/thinwire/asked
expect 1 'thinwired@bible did not start: the reason in the journal; `thinwire --config bible logs` shows its log' \
    thinwire start
is "$({ thinwire start || true; } 2>&1 | wc -l)" 1
follow '%s did not start%s%s; `%s` shows its log' thinwire start
grep -q 'the reason in the journal' "$home/followed" || { echo "FAIL: logs shows no journal"; exit 1; }
# A unit that was not enabled before is not enabled then, and nothing is left running.
is "$(tail -1 /run/thinwire/asked)" "--no-ask-password disable --now thinwired@bible thinwire-worker@bible"
# A fault that `config check` finds is told before any unit is touched.
mv $state/identity.key $state/away
rm /run/thinwire/asked
expect 7 'not started: .*identity.key' thinwire start
is "$(cat /run/thinwire/asked 2>/dev/null || true)" ""
mv $state/away $state/identity.key
# Without the manifest nobody knows whether the run has a secret.
mv /etc/bible.manifest /etc/away
mv $state/run.secret $state/away
expect 3 'BAD' thinwire config check
is "$({ thinwire config check || true; } | grep -c secret)" 0
expect 1 '^- +secret +unknown without the manifest' thinwire doctor
mv /etc/away /etc/bible.manifest
mv $state/away $state/run.secret
# -- a configuration that only root may read
chmod 600 /etc/thinwire/bible.conf
follow '%.100s: %s for the user of the node; `chmod' thinwire config check
expect 0 'The daemon can start' thinwire config check

# -- a key that somebody gave to root: all say it, and their remedy helps
chown root: $state/identity.key
for user in root thinwire; do
    expect 1 'FAIL +identity .*belongs to user root' as $user thinwire --config bible doctor
    expect 7 'would not start' as $user thinwire --config bible config check
done
expect 7 'belongs to user root' as thinwire thinwired --config bible
follow '%s belongs to user %s, and user %s needs' bash -c 'thinwire doctor | grep -m 1 chown'
for user in root thinwire; do
    expect 0 ' 0 failures' as $user thinwire doctor
    expect 0 'The daemon can start' as $user thinwire config check
done
# -- data that root may read and the service may not
mkdir -m 700 "$home/home"
cp "$home/text/text" "$home/home/text"
sed -i "s#^data = .*#data = $home/home/text#" /etc/thinwire/bible.conf
expect 4 'text: Permission denied' thinwire config check
expect 1 'FAIL +data .*Permission denied' thinwire doctor

# -- home folders, which the unit hides; as root may read them, only the path tells
if [[ -w ~root ]]; then
    seen=$(mktemp -d ~root/tw_service_XXXXXX)
    cp "$home/text/text" "$seen/text"
    expect 2 "data: $seen/text: a service sees no home folder; copy it elsewhere, such as to /srv" \
        thinwire --config shed init --run /etc/bible.manifest --data "$seen/text"
    [[ ! -e /etc/thinwire/shed.conf ]] || { echo "FAIL: init left a file"; failures=$((failures + 1)); }
    rm -r "$seen"
fi

# -- a second node on the port of the first: doctor says whose it is
chown thinwire: $state/identity.key
sed -i "s#^data = .*#data = $home/text/text#" /etc/thinwire/bible.conf
setpriv --reuid thinwire --regid thinwire --init-groups thinwired --config bible 2>"$home/log" &
daemon=$!
for _ in $(seq 600); do
    thinwire --config bible status >/dev/null 2>&1 && break
    kill -0 $daemon || { cat "$home/log"; exit 1; }
    sleep 0.1
done
port=$(thinwire --config bible status --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["network"]["listen"][0])')
short=$(thinwire --config bible status --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["node"]["id"][:8])')
expect 0 'This node is' thinwire --config barn init --run /etc/bible.manifest --data "$home/text/text" \
    --listen "$port"
expect 1 "FAIL +port +$port cannot be listened on: node $short of this machine does already" \
    thinwire --config barn doctor
expect 1 'give one of the two nodes another `listen =`' thinwire --config barn doctor
# -- a machine that joins: the same check of its data as init's, before the ticket is used
if [[ -w ~root ]]; then
    seen=$(mktemp -d ~root/tw_service_XXXXXX)
    cp "$home/text/text" "$seen/text"
    thinwire --config bible invite --address "$port" | grep -o 'tw1[^ ]*' | head -1 >"$home/ticket"
    for flag in "--data $seen/text" "--run $seen/bible.manifest"; do
        expect 2 "${flag%% *}: ${flag#* }: a service sees no home folder; copy it elsewhere, such as to /srv" \
            sh -c "thinwire join - --config shed $flag --listen 127.0.0.1:0 <$home/ticket"
        [[ ! -e /etc/thinwire/shed.conf && ! -e /var/lib/thinwire/shed ]] ||
            { echo "FAIL: join left a file"; failures=$((failures + 1)); }
    done
    expect 2 '--data: /nowhere/text: No such file or directory; nothing was made' \
        sh -c "thinwire join - --config shed --data /nowhere/text --listen 127.0.0.1:0 <$home/ticket"
    rm -r "$seen"
fi
expect 0 'next boot, if it was enabled. For good: systemctl disable thinwired@bible thinwire-worker@bible' \
    thinwire --config bible leave
wait $daemon || true
daemon=
expect 0 "OK +port +$port is free" thinwire --config barn doctor
expect 0 "^- +peers +none are configured: the running daemon knows" thinwire --config barn doctor
rm /etc/thinwire/barn.conf

# -- several nodes: which one?
expect 0 'This node is' thinwire --config attic init --run /etc/bible.manifest --data "$home/text/text"
expect 2 'several nodes here: attic, bible; name one, such as by `--config attic`' thinwire status
expect 2 'name one, such as by `--config attic`' thinwire leave
expect 2 'several nodes here: attic, bible' thinwire config check
expect 1 'FAIL +config +there are several nodes' thinwire doctor

# -- a run with an owner: the key stays root's, beside the manifest, and the certificate is the service's
expect 0 'is now in /etc/owner.key' thinwire run new owned --data "$home/text/text" --out /etc/owned.manifest
expect 0 'owned/admission.cert, signed with /etc/owner.key' thinwire --config owned init --run /etc/owned.manifest \
    --data "$home/text/text" --listen 127.0.0.1:0
owned=/var/lib/thinwire/owned
is "$(stat -c '%U %a' /etc/owner.key $owned/admission.cert | tr '\n' ' ')" "root 600 thinwire 600 "
[[ ! -e $owned/run.secret ]] || { echo "FAIL: a needless secret"; failures=$((failures + 1)); }
expect 0 'good +certificate' thinwire --config owned config check
out=$(thinwire --config owned doctor --patience 1 2>&1) || true # no daemon runs
grep -q 'OK *owner.key */etc/owner.key: keep a copy' <<<"$out" ||
    { echo "FAIL: doctor says nothing of the owner's key"; failures=$((failures + 1)); }
expect 2 'has an owner and no secret' thinwire --config owned secret
expect 0 'List 1 revokes 1 node' thinwire --config owned owner revoke "$(printf 'ab%.0s' {1..32})"
is "$(stat -c %U $owned/revoked.list)" thinwire
rm $owned/admission.cert
expect 0 'lacked this: *certificate|admission.cert, signed with /etc/owner.key' thinwire --config owned init
is "$(stat -c %U $owned/admission.cert)" thinwire
expect 0 'It has a new certificate' thinwire --config owned init --new-key
is "$(stat -c %U $owned/admission.cert $owned/identity.key | tr '\n' ' ')" "thinwire thinwire "
expect 0 'good +certificate' thinwire --config owned config check

[[ $failures -eq 0 ]] || { echo "$failures failed"; exit 1; }
echo "all good"

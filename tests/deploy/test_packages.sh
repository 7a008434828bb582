#!/usr/bin/env bash
# test_packages - deploy/packages with a fake apt-get and a fake dpkg-query.
#   test_packages.sh REPOSITORY
set -euo pipefail
cd "$1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
fact() { # SENTENCE COMMAND...
    local sentence=$1
    shift
    if "$@"; then echo "ok   $sentence"; else echo "FAIL $sentence"; cat "$folder/said"; bad=1; fi
}
said() { grep -q "$1" "$folder/said"; }
said_not() { ! said "$1"; }

# The commands that the script may call. The fake sleep returns at once; the fake id says root.
mkdir "$folder/plain" "$folder/apt"
for tool in bash sed dirname env cat mktemp rm grep cut head tail; do
    ln -s "$(command -v $tool)" "$folder/plain/"
done
fake() { # FOLDER NAME SCRIPT
    printf '#!%s\n%s\n' "$(command -v bash)" "$3" >"$folder/$1/$2"
    chmod +x "$folder/$1/$2"
}
fake plain id 'echo 0'
fake plain sleep ''
fake plain ls 'exit 1'
fake plain pkg-config 'exit 1'
fake apt dpkg-query 'exit 1'
fake apt apt-cache '[ "$1" != show ] || echo "Depends: clang-19 (>= 19~)"; [ "$1" != madison ] || echo yes'

run() { # FOLDER ARGUMENTS...
    local path=$folder/plain
    [ "$1" != apt ] || path=$path:$folder/apt
    shift
    status=0
    PATH=$path "$(command -v bash)" deploy/packages "$@" >"$folder/said" 2>&1 || status=$?
}

fake apt apt-get 'echo "$@" >>"'"$folder"'/calls"'
run apt build
fact "missing packages are installed" test $status -eq 0
fact "a build takes every library" grep -q 'install.* libuv1-dev .*libinih-dev.* libdnnl-dev' "$folder/calls"
fact "a build takes nothing of the tests" bash -c "! grep -qE 'cmocka|python3|clang' '$folder/calls'"
rm "$folder/calls"
run apt release
wanted=$(sed -n '/^Build-Depends:/,/^[A-Z].*:/p' deploy/debian/control | sed '1s/^[^:]*://; /^[A-Z]/d' |
    tr ',' '\n' | grep -v '<cross>' | sed 's/debhelper-compat/debhelper/; s/:any//' | awk '{ print $1 }')
for package in build-essential $wanted; do
    fact "a release takes $package" grep -q "install.* $package\b" "$folder/calls"
done
run apt test
fact "the tests take the runtime of the clang there is" grep -q 'libclang-rt-19-dev' "$folder/calls"

# The lines of APT::Status-Fd and the sizes, as apt-get 2.6 prints them.
fake apt apt-get 'case "$*" in
    *--assume-no*)
        echo "0 upgraded, 20 newly installed, 0 to remove and 3 not upgraded."
        echo "Need to get 9,876 kB of archives."
        echo "After this operation, 41.0 MB of additional disk space will be used." ;;
    *install*)
        echo "dlstatus:1:22.5:Retrieving file 5 of 20 (9s remaining)"
        echo "Setting up libuv1-dev"
        [ -z "$TW_TEST_FAILS" ] || { echo "E: the disk is full"; exit 100; } ;;
esac'
export TW_TEST_FAILS=''
run apt build
fact "the number of packages is said" said 'they need, 20 newly installed'
fact "their size is said" said 'Need to get 9,876 kB of archives$'
fact "the progress is shown" said '^packages: Retrieving file 5 of 20 (9s remaining)$'
fact "the words of apt-get are kept for failures" said_not 'Setting up'
TW_TEST_FAILS=yes run apt build
fact "a failure ends with the words of apt-get" said 'the disk is full'
fact "and not with its progress" said_not '^dlstatus'

# The lock is held at the first two calls.
fake apt apt-get 'n=$(cat "'"$folder"'/n" 2>/dev/null || echo 0); echo $((n + 1)) >"'"$folder"'/n"
if [ "$n" -lt 2 ]; then
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (unattended-upgr)" >&2
    exit 100
fi'
run apt build
fact "a held lock is waited for" test $status -eq 0
fact "the wait names its reason" said 'waiting.*another process'
fact "the wait names the holder" said 'held by process 7 (unattended-upgr)'

fake apt apt-get 'echo "E: Could not get lock /var/lib/dpkg/lock-frontend" >&2; exit 100'
TW_LOCK_WAIT_S=0 run apt build
fact "a lock that is never free ends with its message" said 'dpkg/lock-frontend'
fact "and with a failure" test $status -eq 1

fake apt apt-get 'echo "E: Unable to locate package libuv1-dev" >&2; exit 100'
run apt build
fact "other errors are not waited for" said_not waiting
fact "other errors are shown" said 'Unable to locate package libuv1-dev'

run plain build
fact "a system without apt-get is no failure" test $status -eq 0
fact "a system without apt-get gets the list" said 'libuv>=.* missing .*Fedora: libuv-devel .*Arch: libuv'
run plain nonsense
fact "an unknown word is refused" test $status -eq 2
exit $bad

#!/bin/bash
# Fails or kills one save of a checkpoint and of a vote at every occurrence of every system call
# involved. Checks after each that nothing acknowledged is lost and that the next save works.
#   store_sweep.sh VICTIM FOLDER     VICTIM: bin/store_victim; FOLDER: for scratch files
# Exits with status 77 and the reason if strace cannot inject faults.
set -u
victim=$1
scratch=$(mktemp -d "$2/store_sweep.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
export ASAN_OPTIONS=detect_leaks=0 # the leak checker cannot run under strace

if ! command -v strace >/dev/null; then
    echo "skipped: strace is not installed"
    exit 77
fi
strace -qq -o /dev/null -e trace=close -e inject=close:error=EIO:when=1000 true 2>"$scratch/why"
if [ $? -ne 0 ] || [ -s "$scratch/why" ]; then
    echo "skipped: strace cannot inject faults here: $(head -1 "$scratch/why")"
    exit 77
fi

calls="openat fallocate pwrite64 sync_file_range fsync faccessat unlinkat linkat renameat close"
runs=0 tolerated=0 failed=0 lost=0 lied=0 stuck=0

# $1 what, $2 system call, $3 fault, $4 occurrence
one() {
    local state=$scratch/state check newest acknowledged
    rm -rf "$state"
    cp -r "$scratch/$1" "$state"
    (
        strace -qq -o /dev/null -e trace="$2" -e inject="$2:$3:when=$4" \
            "$victim" "$1" "$state" save
        exit $?
    ) >/dev/null 2>&1
    acknowledged=$?
    check=$("$victim" "$1" "$state" check)
    [ $? -eq 0 ] || { stuck=$((stuck + 1)); echo "no further save after $*: $check"; }
    newest=$(sed -n 's/^newest \([0-9]*\)$/\1/p' <<<"$check")
    runs=$((runs + 1))
    if [ "${newest:-0}" -lt 2 ]; then
        lost=$((lost + 1))
        echo "lost after $*: $check"
    fi
    if [ $acknowledged -ne 0 ]; then
        failed=$((failed + 1))
    elif [ "${newest:-0}" -eq 3 ]; then
        tolerated=$((tolerated + 1))
    else
        lied=$((lied + 1))
        echo "falsely acknowledged at $*: $check"
    fi
}

for what in checkpoint vote; do
    mkdir "$scratch/$what"
    "$victim" $what "$scratch/$what" save && "$victim" $what "$scratch/$what" save || exit 1
    cp -r "$scratch/$what" "$scratch/state"
    strace -qq -o "$scratch/trace" -e trace="${calls// /,}" \
        "$victim" $what "$scratch/state" save || exit 1
    rm -rf "$scratch/state"
    # Calls of the dynamic loader, before the folder is opened, are ignored.
    before=$(grep -n "\"$scratch/state\"" "$scratch/trace" | head -1 | cut -d: -f1)
    [ -n "$before" ] || { echo "the victim never opened its folder"; exit 1; }
    for call in $calls; do
        first=$(head -n "$before" "$scratch/trace" | grep -c "^$call(")
        last=$(grep -c "^$call(" "$scratch/trace")
        for ((when = first + 1; when <= last; when++)); do
            for fault in error=EIO error=ENOSPC error=EINTR signal=SIGKILL; do
                one $what $call $fault $when
            done
        done
    done
done
echo "runs $runs: acknowledged in spite of the fault $tolerated, failed or killed $failed," \
    "lost $lost, falsely acknowledged $lied, no further save $stuck"
[ $runs -gt 100 ] && [ $((lost + lied + stuck)) -eq 0 ]

#!/usr/bin/env bash
# test_hardened - checks by readelf and objdump that programs have the hardening of deploy/hardening.cmake.
#   test_hardened.sh IS_FORTIFIED PROGRAM...    IS_FORTIFIED: ON where the build optimises
set -euo pipefail
export LC_ALL=C
for tool in readelf objdump; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
is_fortified=$1
shift

bad=0
holds() { # SENTENCE COMMAND...
    local sentence=$1
    shift
    "$@" || { echo "$program: $sentence"; bad=1; }
}
has() { grep -qE "$1" <<<"$2"; }
has_not() { ! has "$@"; }

for program; do
    header=$(readelf -hW "$program") segments=$(readelf -lW "$program")
    dynamic=$(readelf -dW "$program") symbols=$(readelf --dyn-syms -W "$program")
    holds "it is not position independent" has 'Type: +DYN' "$header"
    holds "it is not linked as a PIE" has 'FLAGS_1.*PIE' "$dynamic"
    holds "it has no read-only relocations" has 'GNU_RELRO' "$segments"
    holds "it binds lazily, so that its GOT stays writable" has 'BIND_NOW|FLAGS_1.*NOW' "$dynamic"
    holds "its stack segment is missing or executable" has 'GNU_STACK .* RW +0x' "$segments"
    holds "a segment is writable and executable" has_not '^ +LOAD .* RWE' "$segments"
    holds "it has text relocations" has_not 'TEXTREL' "$dynamic"
    holds "its frames are not guarded" has '__stack_chk_fail' "$symbols"
    if has 'Machine: .*X86-64' "$header"; then
        code=$(objdump -d --no-show-raw-insn "$program" |
            awk '/^[0-9a-f]+ <main>:/ {getline; print $2} /sub +\$0x1000,%rsp/ {print "page"}' | sort -u)
        holds "indirect jumps may go anywhere" has '^endbr64' "$code"
        holds "large frames skip the guard page of the stack" has '^page' "$code"
    fi
    [ "$is_fortified" != ON ] || holds "its copies are not checked" has '__[a-z]+_chk' "$symbols"
done
[ $bad -eq 0 ] && echo "$# programs are hardened"
exit $bad

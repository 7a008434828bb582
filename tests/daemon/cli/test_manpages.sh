#!/usr/bin/env bash
# The manual pages have the programs' own help line by line, and troff reports no warning.
# BIN: folder of the built programs, SOURCE: of the repository, BUILT: of the pages as installed.
set -euo pipefail
BIN=$1 SOURCE=$2 BUILT=$3
export LC_ALL=C.UTF-8
home=$(mktemp -d /tmp/tw_man_XXXXXX)
trap 'rm -rf "$home"' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}

"$SOURCE/deploy/manpages" "$BIN" "$home/man"
pages='thinwire-engine.1 thinwire-replay.1 thinwire-sim.1 thinwire-worker.8 thinwire.1 thinwire.conf.5 thinwired.8'
[[ $(cd "$home/man" && echo *) == "$pages" ]] || fail "pages"
diff -r "$home/man" "$BUILT" || fail "the installed pages differ from the output of the programs: build again"
command -v groff >/dev/null || { echo "groff is not installed: skipped"; exit 77; }

# told PAGE COMMAND...: the page has every line of the command, in that order
told() {
    local page=$1 lacks
    shift
    "$@" | sed 's/^ *//; s/  */ /g; /^$/d' >"$home/wanted"
    lacks=$(diff "$home/wanted" <(sed 's/^ *//; s/  */ /g; /^$/d' "$home/$page.txt") | grep -c '^<' || true)
    [[ -s $home/wanted && $lacks == 0 ]] || fail "$page lacks $lacks lines of $*"
}
for page in thinwire.1 thinwired.8 thinwire-worker.8 thinwire.conf.5; do
    groff -man -ww -Tutf8 -P-cbou -rLL=300n "$home/man/$page" >"$home/$page.txt" 2>"$home/$page.err"
    [[ ! -s $home/$page.err ]] || fail "$page: $(cat "$home/$page.err")"
    grep -qE '^ +[a-z.-]+ . [a-z]' "$home/$page.txt" || fail "$page: whatis finds no name"
done
for command in run invite owner limit data export sim warnings hooks run-log; do
    grep -qx "${command^^}" "$home/thinwire.1.txt" || fail "no section about $command"
    told thinwire.1 "$BIN/thinwire" help $command
done
told thinwire.1 "$BIN/thinwire" help exit-codes
twice=$(grep -E '^[A-Z]' "$home/thinwire.1.txt" | grep -v '^THINWIRE' | sort | uniq -d)
[[ -z $twice ]] || fail "two sections about $twice"
told thinwire-worker.8 "$BIN/thinwire-worker" --help
told thinwire.conf.5 "$BIN/thinwire" config example
told thinwired.8 bash -c '"$0" --help | sed 1,2d' "$BIN/thinwired"
echo "pages true"

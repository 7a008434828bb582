# fresh_system.sh - sourced by tests/portability and tests/packages: fresh Debians made by debootstrap, and
# commands in them. The caller sets `out`, the folder of logs, and `passed` and `failed`.

# One step of a system; its output is in $out/SYSTEM.NAME.log. Status 1 if it failed.
step() { # SYSTEM NAME SENTENCE COMMAND...
    local log=$out/$1.$2.log title="$1: $3"
    shift 3
    echo "== $title"
    SECONDS=0
    if "$@" >"$log" 2>&1 </dev/null; then
        echo "   passed in $SECONDS s"
        passed=$((passed + 1))
        return 0
    fi
    echo "   FAILED after $SECONDS s, see $log:"
    tail -30 "$log" | sed 's/^/   | /'
    failed=$((failed + 1))
    return 1
}

# A command in the source tree of a system, or at its top. Mounts are in a namespace of their own, so that
# nothing of this machine is below the root afterwards.
inside() { # ROOT COMMAND
    unshare --mount --propagation private bash -c '
        mount --bind "$1" "$1" # the root is a mount of its own, as `ip netns exec` wants it
        for place in proc sys dev; do mount --rbind "/$place" "$1/$place"; done
        exec chroot "$1" /usr/bin/env -i HOME=/srv LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            DEBIAN_FRONTEND=noninteractive bash -euo pipefail -c "
                [ ! -d /srv/thinwire ] || cd /srv/thinwire; $2"' - "$@"
}

# The mirror, the proxy and the like are those of this machine, wherever it stands.
mirror() {
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }'
}

# The smallest Debian, with the packages INCLUDE, that reaches the same mirror as this machine.
make_root() { # ROOT CODENAME [INCLUDE]
    rm -rf --one-file-system "$1"
    debootstrap --variant=minbase ${3:+"--include=$3"} "$2" "$1" $(mirror)
    apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Retries|ForceIPv[46])\b' \
        >"$1/etc/apt/apt.conf.d/90host" || true
    [ ! -e /etc/apt/auth.conf ] || cp /etc/apt/auth.conf "$1/etc/apt/"
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
}

# The files of this tree that git knows or would add, in a system.
copy_tree() { # ROOT
    mkdir -p "$1/srv/thinwire"
    if [ -e .git ]; then
        git ls-files -zco --exclude-standard | tar --null -T - --ignore-failed-read -c
    else
        tar --exclude=./build -c .
    fi | tar -x -C "$1/srv/thinwire"
}

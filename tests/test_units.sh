#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the build into an empty root and has systemd check the units there. Any output is a failure.
#   test_units.sh BUILD-DIRECTORY
set -eu

build=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$root/installed" >"$root/install.log" 2>&1 || {
    cat "$root/install.log"
    exit 1
}

# verify TEXT-FILE UNIT...: what systemd has to say about the units.
verify() {
    said=$1
    shift
    # Generators of this machine are none of our business; its own units are, as dependencies.
    SYSTEMD_LOG_LEVEL=warning systemd-analyze --man=no verify "$@" >"$said" 2>&1 || echo "exit status $?" >>"$said"
}

mkdir "$root/units" "$root/broken"
count=0
for name in trainerd inferd; do
    unit=$(find "$root/installed" -name "$name.service")
    if [ ! -f "$unit" ]; then
        echo "$name.service was not installed"
        exit 1
    fi
    # The programs lie below the empty root here.
    sed "s|^ExecStart=|&$root/installed|" "$unit" >"$root/units/$name.service"
    sed 's/^Restart=.*/Restart=sometimes/' "$root/units/$name.service" >"$root/broken/$name.service"
    sed "s|^ExecStart=.*|ExecStart=$root/nowhere|" "$root/units/$name.service" >"$root/broken/$name-nowhere.service"
    count=$((count + 1))
done

verify "$root/said" "$root/units/trainerd.service" "$root/units/inferd.service"
if [ -s "$root/said" ]; then
    cat "$root/said"
    exit 1
fi

# Proof that the check checks: each of these must be complained about.
for unit in "$root"/broken/*.service; do
    verify "$root/said" "$unit"
    if [ ! -s "$root/said" ]; then
        echo "systemd-analyze has nothing to say about $(basename "$unit"), which is wrong"
        exit 1
    fi
done

users=$(find "$root/installed" -path '*sysusers.d/shardwire.conf')
if command -v systemd-sysusers >/dev/null; then
    mkdir -p "$root/users/etc"
    systemd-sysusers --root="$root/users" "$users" >"$root/said" 2>&1
    if ! grep -q '^shardwire:' "$root/users/etc/passwd" || ! grep -q '^shardwire:' "$root/users/etc/group"; then
        cat "$root/said"
        echo "$users made no user and group 'shardwire'"
        exit 1
    fi
fi
for name in trainerd inferd; do
    example=$(find "$root/installed" -path "*/examples/$name.conf")
    if ! grep -q "^\[$name\]\$" "$example"; then
        echo "the example configuration of $name is not there, or is none"
        exit 1
    fi
done
echo "$count units are good"

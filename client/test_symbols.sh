#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: test_symbols.sh LIBRARY MAP READELF NM
# The library exports what its map lists and nothing else, and needs no event loop, no daemon's
# libraries and no C++.
set -eu
library=$1 map=$2 readelf=$3 nm=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$readelf" -d "$library" > "$work/dynamic"
grep -q 'SONAME.*\[libshardwire\.so\.0\]' "$work/dynamic" || {
    echo "the soname is not libshardwire.so.0"; exit 1; }
if grep NEEDED "$work/dynamic" | grep -E 'libuv|jansson|inih|INIReader|systemd|stdc|gloo'; then
    echo "the library needs what only daemons and tools may need (above)"; exit 1
fi

sed -n '/global:/,/local:/s/^ *\(sw_[a-z0-9_]*\);$/\1/p' "$map" | sort > "$work/wanted"
"$nm" -D --defined-only "$library" | sed -n 's/^[^ ]* [^A ] \([^@]*\)@@SHARDWIRE_0\.1$/\1/p' |
    sort > "$work/exported"
"$nm" -D --defined-only "$library" | grep -v '@@SHARDWIRE_0\.1$' | grep -v ' A SHARDWIRE_' \
    > "$work/unversioned" || true
test -s "$work/wanted" || { echo "no symbol was read from $map"; exit 1; }
diff "$work/wanted" "$work/exported" || { echo "map (<) and library (>) differ"; exit 1; }
test ! -s "$work/unversioned" || { cat "$work/unversioned"; echo "not in the map"; exit 1; }
echo "$(wc -l < "$work/wanted") symbols"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wrong.sh SOURCE TARGET SED: a copy of a kernel's source with a mistake in it.
set -eu
mkdir -p "$(dirname "$2")"
sed "$3" "$1" >"$2.new"
if cmp -s "$1" "$2.new"; then
    echo "$1 has nothing for $3" >&2
    exit 1
fi
mv "$2.new" "$2"

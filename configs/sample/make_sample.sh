#!/usr/bin/env bash
# Makes kjv_genesis_to_2samuel.txt beside this script from Debian's packages bible-kjv and bible-kjv-text.
# Each chapter: its heading, a blank line, one verse per line without its number, a blank line. ASCII, LF.
set -euo pipefail
out=$(dirname "$(readlink -f "$0")")/kjv_genesis_to_2samuel.txt
# -l10000: one verse per line. The last reference is clamped to the last verse of 2 Samuel 24.
bible -l10000 gen1:1-2sam24:99 </dev/null |
  sed -E 's/^ +[0-9]+ //' |   # the verse number
  sed '1{/^$/d}' >"$out"      # the program begins with a blank line
sha256sum "$out"

#!/bin/sh
# keep_report.sh FILE COMMAND...: runs the command. What it says to stderr goes to FILE, and is shown if it fails.
report=$1
shift
"$@" 2>"$report" && exit 0
status=$?
cat "$report" >&2
exit $status

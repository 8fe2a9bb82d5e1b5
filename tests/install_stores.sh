#!/bin/sh
# Builds the log stores that tests run against, as tests/stores/go.mod pins them, into a cache outside the tree. Quiet, at
# once done when they are there already, and never a failure: where it cannot build, it says so in one line and those
# tests are skipped. A build takes a minute or two of one core; nobody needs Go to use relight.
set -u

cd "$(dirname "$0")/stores" || exit 0
pins=$(cksum <go.mod | cut -d ' ' -f 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/relight/stores/$pins
[ -x "$cache/victoria-logs" ] && exit 0

if ! command -v go >/dev/null 2>&1; then
    echo "Go is not installed: the tests on a real VictoriaLogs will be skipped."
    exit 0
fi
log=$(mktemp)
mkdir -p "$cache"
if GOFLAGS=-mod=readonly nice go build -p 2 -trimpath -o "$cache/victoria-logs.new" \
    github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs >"$log" 2>&1; then
    mv "$cache/victoria-logs.new" "$cache/victoria-logs"
    rm -f "$log"
else
    echo "VictoriaLogs could not be built ($(tail -n 1 "$log")): the tests on it will be skipped. Log: $log"
fi
exit 0

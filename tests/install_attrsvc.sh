#!/bin/sh
# Installs NVIDIA's attribution service, the two releases that relight speaks to, as requirements/attrsvc-*.lock pins
# them, into a cache outside the tree. It needs Python 3.12. Quiet, at once done when they are there already, and never a
# failure: where it can't, it says so in one line and those tests are skipped. Nobody needs it to use relight.
set -u

cd "$(dirname "$0")/.." || exit 0

python_312() {
    for python in python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12; do
        "$python" -c 'import sys; print(sys.executable)' 2>/dev/null && return
    done
}

log=$(mktemp)
for release in 0.7 0.6; do
    lock=requirements/attrsvc-$release.lock
    place=${XDG_CACHE_HOME:-$HOME/.cache}/relight/attrsvc/$release-$(cksum <"$lock" | cut -d ' ' -f 1)
    [ -e "$place/installed" ] && continue
    python=$(python_312)
    if [ -z "$python" ]; then
        echo "There is no Python 3.12: the tests on a real nvrx-attrsvc will be skipped."
        break
    fi
    if .venv/bin/uv venv --quiet --clear --python "$python" "$place" >"$log" 2>&1 &&
        nice .venv/bin/uv pip install --quiet --compile-bytecode --python "$place/bin/python" \
            --require-hashes --no-deps --only-binary :all: --python-platform "$(uname -m)-manylinux_2_39" -r "$lock" >>"$log" 2>&1; then
        touch "$place/installed"
    else
        echo "nvrx-attrsvc $release could not be installed ($(tail -n 1 "$log")): the tests on it will be skipped."
    fi
done
rm -f "$log"
exit 0

#!/bin/sh
# Makes a folder with a Debian in it that has another Slurm release than this host:
#     tests/slurm/make_root.sh 24.11      from Debian 13
#     tests/slurm/make_root.sh 26.05      from Debian unstable
# It is kept in $SLURM_TEST_CACHE (~/.cache/relight) and at once done when it is there. As root, on a Debian host
# whose own mirror has these suites; about two minutes and 350 MB each. tests/slurm/enter_root.sh runs commands in it.
set -eu

release=$1
case $release in
24.11) suite=trixie ;;
26.05) suite=sid ;;
*) echo "no Debian suite is known for Slurm $release: 24.11 or 26.05" >&2 && exit 2 ;;
esac
cache=${SLURM_TEST_CACHE:-${HOME:-/root}/.cache/relight}
root=$cache/slurm-$release
log=$cache/slurm-$release.log

fail() {
    echo "Slurm $release could not be made: $1" >&2
    exit 1
}

is_made() { [ -x "$root/usr/sbin/slurmdbd" ]; }

is_made && exit 0
[ "$(id -u)" = 0 ] || fail "this is not root"
command -v apt-get >/dev/null || fail "there is no apt-get here"
mkdir -p "$cache"
exec 9>"$root.lock"
flock 9
is_made && exit 0

echo "making Slurm $release in $root ..."
export DEBIAN_FRONTEND=noninteractive
command -v debootstrap >/dev/null ||
    { apt-get update && apt-get install -y --no-install-recommends debootstrap; } >"$log" 2>&1 ||
    fail "debootstrap is not installed and could not be; see $log"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)
[ -n "$mirror" ] || fail "apt knows no Debian mirror here; run apt-get update"

partial=$root.partial
rm -rf "$partial" "$root"
packages=slurmctld,slurmd,slurmdbd,slurm-client,slurmrestd,slurm-wlm-jwt-plugin,munge,python3
# In a mount namespace of its own: whatever debootstrap mounts is gone with it, however it ends.
unshare --mount debootstrap --variant=minbase --include="$packages" "$suite" "$partial" "$mirror" >"$log" 2>&1 ||
    fail "$(tail -n 1 "$log"); see $log"
has=$(chroot "$partial" slurmctld -V)
case $has in
"slurm-wlm $release"* | "slurm $release"*) ;;
*) rm -rf "$partial" && fail "Debian's $suite has $has by now" ;;
esac
rm -rf "$partial"/var/cache/apt/archives/*.deb "$partial"/var/lib/apt/lists/*
mv "$partial" "$root"

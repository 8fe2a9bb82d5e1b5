#!/bin/sh
# Runs a command in a folder made by make_root.sh, as if that were this host:
#     unshare --mount tests/slurm/enter_root.sh ROOT COMMAND [ARGUMENT...]
# /tmp and this project lie at the same paths inside, and the working directory stays. The mounts are seen by the
# command and its children only and are gone with the last of them, however it ends.
set -eu

root=$1
shift
project=$(cd "$(dirname "$0")/../.." && pwd)
for path in /dev /proc /sys /tmp; do
    mount --rbind "$path" "$root$path"
done
mount -t tmpfs tmpfs "$root/run"
mount --bind /etc/hosts "$root/etc/hosts"
mkdir -p "$root$project"
mount --rbind "$project" "$root$project"
directory=$PWD
[ -d "$root$directory" ] || directory=/
exec chroot "$root" env --chdir="$directory" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"

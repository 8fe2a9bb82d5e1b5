#!/bin/sh
# Installs the Debian packages that tests need. Quiet, at once done when they are there already, and never a failure:
# where it cannot install, it says so in one line and the tests that need them are skipped.
set -u

# need WHAT IS_THERE PACKAGE...: install the packages unless the command IS_THERE succeeds; WHAT is skipped without them.
need() {
    what=$1 is_there=$2
    shift 2
    $is_there >/dev/null 2>&1 && return
    if [ -n "$unable" ]; then
        echo "$1 is not installed and $unable: $what will be skipped."
        return
    fi
    prepare
    apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 ||
        echo "$1 could not be installed ($(tail -n 1 "$log")): $what will be skipped. Log: $log"
}

# The daemons are only to be installed: the tests start their own, and a package's own start would fail in a container.
prepare() {
    [ -n "${log:-}" ] && return
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    apt-get update >"$log" 2>&1
}

has() {
    for name; do command -v "$name" || return 1; done
}
has_slurm() { has slurmctld slurmd squeue munged; }
has_slurmrestd() { has slurmrestd && ls /usr/lib/*/slurm-wlm/auth_jwt.so; }
has_sshd() { [ -x /usr/sbin/sshd ]; }
has_accounting() { has slurmdbd mariadbd; }
has_metrics() { has prometheus victoria-metrics; }
has_ripgrep() { has rg; }

unable=
command -v apt-get >/dev/null 2>&1 || unable="there is no apt-get"
[ "$(id -u)" = 0 ] || unable="this is not root"

need "the tests on a real Slurm cluster" has_slurm slurmctld slurmd slurm-client munge
need "the tests over a real slurmrestd" has_slurmrestd slurmrestd slurm-wlm-jwt-plugin
need "the tests over a real sshd" has_sshd openssh-server openssh-client
need "the tests with Slurm's accounting" has_accounting slurmdbd mariadb-server-core
need "the tests with real metrics" has_metrics prometheus victoria-metrics
need "the scanner's figures beside ripgrep" has_ripgrep ripgrep
exit 0

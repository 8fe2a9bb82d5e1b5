#!/bin/sh
# Makes the namespace TEMPORAL_NAMESPACE on the server TEMPORAL_ADDRESS and registers relight's search attributes in it.
# Safe to repeat. A workflow that sets an attribute which the server does not know makes no progress at all.
set -eu

RETENTION=720h

temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"

# A new namespace is known to all parts of the server after some seconds only.
tries=60
until registered=$(temporal operator search-attribute list --namespace "$TEMPORAL_NAMESPACE"); do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || exit 1
    sleep 1
done

register() {
    if ! printf '%s\n' "$registered" | grep -Eq "^ *$1 "; then
        temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" --name "$1" --type "$2"
    fi
}

register Cluster Keyword
register SlurmJobId Keyword
register SlurmUser Keyword
register RecoveryPhase Keyword
register RecoveryMode Keyword
register FailureCategory Keyword
register Restarts Int
register ExcludedNodes KeywordList
register BlindSince Keyword

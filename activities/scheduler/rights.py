"""What Slurm lets an account do to other users' jobs.

root and SlurmUser may do everything. For others slurmdbd's AdminLevel decides: Operator may requeue, hold, release and
exclude nodes, and only Administrator may write AdminComment (seen on 22.05.8; ``validate_super_user`` in the sources of
22.05 to 26.05). Without slurmdbd there are no levels.
"""

from __future__ import annotations

from typing import NamedTuple

from activities.scheduler.site import Answer, Capability, SiteFacts, Unknown

_OPERATORS = frozenset({"operator", "administrator", "admin"})
_ADMINISTRATORS = frozenset({"administrator", "admin"})


class Rights(NamedTuple):
    """What an account may do."""

    act: Capability
    """Requeue, hold, release and constrain anybody's job."""
    admin_comment: Capability
    """Write AdminComment."""


def same_for_both(capability: Capability) -> Rights:
    """Return one answer to both questions."""
    return Rights(capability, capability)


def rights_without_levels(account: str, facts: SiteFacts) -> Rights | None:
    """Return what is settled before anybody asks slurmdbd for the account's AdminLevel; None: that decides."""
    if not account:
        return same_for_both(Capability.unknown("it is not known which account relight has on the cluster"))
    if account == "root":
        return same_for_both(Capability.yes())
    if isinstance(facts.slurm_user, Unknown):
        return None if facts.has_accounting is Answer.YES else same_for_both(Capability.unknown(facts.slurm_user.why))
    slurm_user = facts.slurm_user.value
    if account == slurm_user:
        return same_for_both(Capability.yes())
    if facts.has_accounting is Answer.NO:
        why = f"without slurmdbd only root and {slurm_user} may act on other users' jobs, and relight is {account}"
        return same_for_both(Capability.no(f"{why}: let it be {slurm_user}, or set up slurmdbd"))
    return None


def rights_by_level(account: str, levels: frozenset[str]) -> Rights:
    """Return what slurmdbd's `levels` of the account allow; none: slurmdbd does not know it."""
    levels = frozenset(level.lower() for level in levels)
    if levels & _ADMINISTRATORS:
        return same_for_both(Capability.yes())
    if not levels:
        how = f"sacctmgr add user {account} account=ACCOUNT adminlevel=admin"
        return same_for_both(Capability.no(f"slurmdbd does not know {account}: {how}"))
    how = f"sacctmgr modify user where name={account} set adminlevel=admin"
    if levels & _OPERATORS:
        short = f"{account} has AdminLevel Operator, and only Administrators write AdminComment: {how}"
        return Rights(Capability.yes(), Capability.no(short))
    return same_for_both(Capability.no(f"{account} has no AdminLevel: {how}"))

"""The slurm.conf of a cluster under test: one host, no cgroups, no accounting. It suits every release from 22.05 on."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path


def slurm_conf(
    directory: Path,
    *,
    controller_port: int,
    node_ports: Mapping[str, int],
    slurmd_timeout_s: int,
    jwt: bool,
    extra_conf: str,
) -> str:
    """Return the text for a cluster that keeps all its files in `directory`; `jwt`: it takes tokens besides munge,
    made with the key in ``jwt.key``."""
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000"
        for node, port in node_ports.items()
    )
    tokens = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={directory}/jwt.key" if jwt else ""
    return f"""ClusterName=relight-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
{tokens}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={directory}/log/jobcomp.txt
JobRequeue=1
MinJobAge=300
KillWait=2
ReturnToService=2
SlurmdTimeout={slurmd_timeout_s}
{extra_conf}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP
"""

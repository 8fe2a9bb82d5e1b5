"""The part of NCCL that this example needs: ranks that meet over TCP and sum one number per iteration through rank 0.

A rank that died closes its connection, which makes the others fail as victims, with the lines that NCCL and torch print
then. A rank that lives but takes no part makes all others wait, silently and for ever.
"""

from __future__ import annotations

import os
import socket
import struct
import time

RENDEZVOUS_TIMEOUT_S = 30.0
NUMBER = struct.Struct("!d")


class DistBackendError(RuntimeError):
    """A collective failed. Printed under the name that torch gives it."""

    __module__ = "torch.distributed"


class DistStoreError(RuntimeError):
    """The ranks did not find each other. Printed under the name that torch gives it."""

    __module__ = "torch.distributed"


class PeerLostError(Exception):
    """The other end of one connection is gone."""


class Connection:
    """A TCP connection to one other rank. `address` names it as NCCL does: ``node03<46314>``."""

    def __init__(self, sock: socket.socket, node: str) -> None:
        self.sock = sock
        self.address = f"{node}<{sock.getpeername()[1]}>"

    def send(self, number: float) -> None:
        """Send one number. Raises `PeerLostError`."""
        try:
            self.sock.sendall(NUMBER.pack(number))
        except OSError as error:
            raise PeerLostError(self.address) from error

    def receive(self) -> float:
        """Wait for one number, for as long as it takes. Raises `PeerLostError`."""
        received = b""
        while len(received) < NUMBER.size:
            try:
                part = self.sock.recv(NUMBER.size - len(received))
            except OSError as error:
                raise PeerLostError(self.address) from error
            if not part:
                raise PeerLostError(self.address)
            received += part
        return float(NUMBER.unpack(received)[0])


class ProcessGroup:
    """All ranks of one attempt. Rank 0 has a connection to every other rank; every other rank has one to rank 0."""

    def __init__(self, rank: int, node: str, peers: list[Connection]) -> None:
        self.rank = rank
        self.node = node
        self.peers = peers

    def all_reduce(self, number: float) -> float:
        """Return the sum of all ranks' numbers once every rank gave one. Raises `DistBackendError`."""
        try:
            return self._reduce_and_broadcast(number) if self.rank == 0 else self._contribute(number)
        except PeerLostError as lost:
            pid = os.getpid()
            print(
                f"{self.node}:{pid}:{pid + 16} [0] misc/socket.cc:58 NCCL WARN socketProgress: "
                f"Connection closed by remote peer {lost}",
                flush=True,
            )
            raise DistBackendError(
                "NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error, "
                "NCCL version 2.26.2\n"
                "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
                f"prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer {lost}"
            ) from None

    def _reduce_and_broadcast(self, number: float) -> float:
        total = number + sum(peer.receive() for peer in self.peers)
        for peer in self.peers:
            peer.send(total)
        return total

    def _contribute(self, number: float) -> float:
        self.peers[0].send(number)
        return self.peers[0].receive()


def init_process_group(rank: int, world_size: int, node: str, address: str, port: int) -> ProcessGroup:
    """Bring all ranks together. Raises `DistStoreError` when some do not arrive within `RENDEZVOUS_TIMEOUT_S`."""
    peers = _accept_all(world_size, node, address, port) if rank == 0 else [_connect(rank, node, address, port)]
    return ProcessGroup(rank, node, peers)


def _accept_all(world_size: int, node: str, address: str, port: int) -> list[Connection]:
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    joined: dict[int, Connection] = {}
    with socket.create_server((address, port), backlog=world_size) as server:
        while len(joined) < world_size - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                sock, _ = server.accept()
            except OSError:
                raise DistStoreError(
                    f"Timed out after {RENDEZVOUS_TIMEOUT_S:.0f} seconds waiting for clients. "
                    f"{len(joined) + 1}/{world_size} clients joined."
                ) from None
            peer_rank, peer_node = _read_line(sock).split()
            sock.sendall(f"0 {node}\n".encode())
            joined[int(peer_rank)] = Connection(sock, peer_node)
    return [joined[rank] for rank in sorted(joined)]


def _connect(rank: int, node: str, address: str, port: int) -> Connection:
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    while True:
        try:
            sock = socket.create_connection((address, port), timeout=RENDEZVOUS_TIMEOUT_S)
            sock.settimeout(None)
            sock.sendall(f"{rank} {node}\n".encode())
            return Connection(sock, _read_line(sock).split()[1])
        except (OSError, IndexError):
            if time.monotonic() > deadline:
                raise DistStoreError(
                    f"The client socket has timed out after {RENDEZVOUS_TIMEOUT_S * 1000:.0f}ms "
                    f"while trying to connect to ({address}, {port})."
                ) from None
            time.sleep(0.05)


def _read_line(sock: socket.socket) -> str:
    line = b""
    while not line.endswith(b"\n"):
        part = sock.recv(1)
        if not part:
            return ""
        line += part
    return line.decode()

"""Addresses of the job's loader servers, and how to authenticate."""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _abi, _structs
from ._waiting import interruptible
from .errors import InvalidArgument

Servers = Union[str, Sequence[str], "Connection"]


@dataclass(frozen=True)
class Connection:
    """Addresses of the servers, in order of preference, and how to reach them."""

    #: `unix:/path` or `host:port`.
    servers: Tuple[str, ...]
    #: PEM file with the CAs of the servers' certificates. TCP then uses TLS.
    tls_ca: Optional[str] = None
    tls_cert: Optional[str] = None  #: PEM file of this client; needs tls_key
    tls_key: Optional[str] = None
    #: The name in the servers' certificates, if it differs from the address.
    tls_server_name: Optional[str] = None
    token_file: Optional[str] = None  #: its first line is the bearer token
    #: Seconds to wait at the start for the first server to answer. 0: it must
    #: answer at once.
    wait_for_server: float = 60.0
    #: Seconds without a byte from a server before another takes over. 0: 30.
    hang_after: float = 0.0
    #: Seconds without a byte from any server before `next` fails. 0: 300.
    give_up_after: float = 0.0
    #: Connections, at most 8, that carry blocks which are not in shared memory. Use
    #: more than one if one cannot fill the link.
    streams: int = 1
    #: Servers, at most 64, that make a rank's blocks at once, each its share. A name
    #: among `servers` is then a server at each address that it resolves to, now or
    #: while the rank runs. 0: one server makes all, and the others are for its failure.
    spread: int = 0
    #: Names this start of the job, the same for all its ranks (a launcher's job
    #: number and restart count): ranks of an earlier start that still run then
    #: never join this one's groups. None: the environment's BALLAST_RUN_ID, if set.
    run: Optional[str] = None
    #: Network interface, or this machine's address, at which ranks on a CPU exchange
    #: with other processes. None: the environment's BALLAST_EXCHANGE_INTERFACE, if set,
    #: else the interface with the route to the first server on another machine, or
    #: 127.0.0.1.
    exchange_interface: Optional[str] = None

    @staticmethod
    def of(servers: Servers) -> Connection:
        """Accepts an address, several separated by commas, a list, or a connection."""
        if isinstance(servers, Connection):
            return servers
        if isinstance(servers, str):
            servers = [name for name in servers.split(",") if name]
        if not servers:
            raise InvalidArgument(
                'servers: found none; wanted "unix:/path" or "host:port" of a running '
                "`ballast-server serve`, or what `ballast.serve` answers"
            )
        return Connection(tuple(servers))

    def raw(self) -> _structs.Connection:
        """The library's struct. It keeps alive the data that it points to."""
        value = _structs.sized(_structs.Connection)
        value.num_servers = len(self.servers)
        value.servers = (ctypes.c_char_p * max(len(self.servers), 1))(
            *(name.encode() for name in self.servers)
        )
        for key in ("tls_ca", "tls_cert", "tls_key", "tls_server_name", "token_file"):
            text = getattr(self, key)
            setattr(value, key, None if text is None else str(text).encode())
        value.wait_for_server_s = self.wait_for_server or -1.0  # 0 is the default
        value.hang_after_s = self.hang_after
        value.give_up_after_s = self.give_up_after
        value.streams = self.streams
        value.spread = self.spread
        run = os.environ.get("BALLAST_RUN_ID") if self.run is None else self.run
        value.run = run.encode() if run else None
        interface = self.exchange_interface
        if interface is None:
            interface = os.environ.get("BALLAST_EXCHANGE_INTERFACE")
        value.exchange_interface = interface.encode() if interface else None
        return value

    def job(self) -> Dict[str, Any]:
        """The job as the servers describe it: `modules`, `global_batch`,
        `micro_batch`, `delivery`, `model`, `fingerprint` and so on."""
        raw = ctypes.byref(self.raw())
        text = interruptible(lambda: _abi.take_bytes("ballast_query_job", raw))
        job: Dict[str, Any] = json.loads(text)
        return job

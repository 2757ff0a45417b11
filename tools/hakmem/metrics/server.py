"""Serves the metrics over HTTP until a signal ends it."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from hakmem.errors import UsageError


@dataclass(frozen=True)
class Address:
    """Port 0: any that is free."""

    host: str
    port: int

    def url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}/metrics"


def serve(collector: Collector, address: Address) -> None:
    """Returns after SIGINT or SIGTERM."""
    ending = (signal.SIGINT, signal.SIGTERM)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    # Blocked before the server's threads begin, which inherit it: only sigwait() takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        where = f"{address.host}:{address.port}"
        raise UsageError(f"cannot listen on {where}: {error.strerror or error}") from None
    sys.stderr.write(f"hakmem: serving {address.url(server.server_port)}\n")
    sys.stderr.flush()
    signal.sigwait(ending)
    server.shutdown()
    server.server_close()
    thread.join()

"""Serves the metrics over HTTP until a signal ends it."""

from __future__ import annotations

import io
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from hakmem.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# The second for whoever leaves the path away, the last for browsers.
PATHS = ("/metrics", "/", "/favicon.ico")
# A client that says nothing, or does not take its answer, for so long is given up.
CLIENT_S = 30.0


@dataclass(frozen=True)
class Address:
    """Port 0: any that is free."""

    host: str
    port: int

    def url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}/metrics"


def _of_known_paths(application: WSGIApplication) -> WSGIApplication:
    """The library's own answers every path with the metrics."""

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environment["PATH_INFO"] in PATHS:
            return application(environment, start)
        start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"hakmem: the metrics are at /metrics\n"]

    return answer


class Answer(io.BufferedIOBase):
    """What a client is written by. One that takes nothing is, to whoever writes, one that went: of
    these wsgiref says nothing."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        try:
            self._connection.sendall(data)
        except TimeoutError as error:
            raise ConnectionAbortedError(*error.args) from None
        return memoryview(data).nbytes


class Client(WSGIRequestHandler):
    """One connection, in a thread of its own."""

    def setup(self) -> None:
        super().setup()
        self.wfile = Answer(self.connection)

    def handle(self) -> None:
        # It went, or never said what it wants.
        with suppress(OSError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


def serve(collector: Collector, address: Address, client_s: float = CLIENT_S) -> None:
    """Returns after SIGINT or SIGTERM."""
    ending = (signal.SIGINT, signal.SIGTERM)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    # Blocked before the server's threads begin, which inherit it: only sigwait() takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except (OSError, UnicodeError) as error:
        # The latter of a name with a part that is empty or too long.
        where = f"{address.host}:{address.port}"
        why = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"cannot listen on {where}: {why or error}") from None
    application = server.get_app()
    assert application is not None
    server.set_app(_of_known_paths(application))
    server.RequestHandlerClass = type("Client", (Client,), {"timeout": client_s})
    sys.stderr.write(f"hakmem: serving {address.url(server.server_port)}\n")
    sys.stderr.flush()
    signal.sigwait(ending)
    server.shutdown()
    server.server_close()
    thread.join()

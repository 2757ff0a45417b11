"""nginx: files served plain, copied, compressed, with includes, and through itself as a proxy."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .process import ProgramFailedError, Server

CLIENTS = 6
WORKERS = 2
ROUNDS = 500
FETCH_SECONDS_MAX = 60.0
FILE_SIZES = (0, 1, 100, 4095, 4096, 20_000, 100_000)
FILE_TIME_S = 1_600_000_000
PLACES = ("", "copied/", "packed/", "included/", "proxied/")

CONFIGURATION = """
daemon off;
master_process on;
worker_processes {workers};
{user}
pid {root}/pid;
error_log {root}/error.log notice;
events {{ worker_connections 256; }}
http {{
    access_log {root}/access.log;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    default_type text/plain;
    keepalive_requests 100000;
    server {{
        listen 127.0.0.1:{port};
        root {root}/files;
        location / {{ sendfile on; }}
        location /copied/ {{ alias {root}/files/; sendfile off; output_buffers 2 8k; }}
        location /packed/ {{ alias {root}/files/; gzip on; gzip_min_length 1; gzip_comp_level 5; }}
        location /included/ {{ alias {root}/files/; ssi on; ssi_types text/plain; }}
        location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/copied/; proxy_buffers 8 4k; }}
    }}
}}
"""


def content(size: int) -> bytes:
    """Text that compresses, but not to nothing."""
    lines = b"".join(b"line %d of %d\n" % (number * 7919, size) for number in range(size // 12 + 1))
    return lines[:size]


def write_site(root: Path) -> None:
    """The files that are served."""
    files = root / "files"
    files.mkdir()
    for number, size in enumerate(FILE_SIZES):
        path = files / f"file{number}.txt"
        path.write_bytes(content(size))
        os.utime(path, (FILE_TIME_S, FILE_TIME_S))


def server_words(root: Path, port: int) -> list[str]:
    """Writes the configuration; workers keep the rights that they need for a private directory."""
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = root / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(root=root, port=port, user=user, workers=WORKERS))
    return ["/usr/sbin/nginx", "-c", str(configuration), "-e", str(root / "error.log")]


def requests(client: int, rounds: int) -> tuple[bytes, int]:
    """A pipeline of requests for one connection, and their number."""
    lines = []
    for number in range(rounds):
        for place in PLACES:
            name = f"file{(number + client) % (len(FILE_SIZES) + 1)}.txt"
            # One file in eight does not exist.
            lines.append(f"GET /{place}{name} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n")
    joined = "\r\n".join(lines) + "Connection: close\r\n\r\n"
    return joined.encode(), len(lines)


def fetch(server: Server, streams: Mapping[int, bytes]) -> dict[int, list[bytes]]:
    """Sends each client's requests on its own connection, all at once, until the server closes.

    One thread serves all connections: the clients shall cost little beside the server.
    """
    selector = selectors.DefaultSelector()
    unsent = {client: memoryview(stream) for client, stream in streams.items()}
    received: dict[int, list[bytes]] = {client: [] for client in streams}
    for client in streams:
        connection = server.connect()
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
    deadline = time.monotonic() + FETCH_SECONDS_MAX
    while selector.get_map():
        if time.monotonic() > deadline:
            raise ProgramFailedError("nginx does not answer")
        for key, events in selector.select(1.0):
            connection, client = cast(socket.socket, key.fileobj), key.data
            if events & selectors.EVENT_WRITE:
                unsent[client] = unsent[client][connection.send(unsent[client]) :]
                if not unsent[client]:
                    selector.modify(connection, selectors.EVENT_READ, client)
            if events & selectors.EVENT_READ:
                data = connection.recv(1 << 18)
                received[client].append(data)
                if not data:
                    selector.unregister(connection)
                    connection.close()
    return received


class Nginx(RealProgram):
    """A master and two workers; memory is that of the largest of them."""

    name = "nginx"
    about = "sendfile, copies, gzip, SSI, proxy; 6 connections with pipelines"
    executable = Path("/usr/sbin/nginx")
    packages = ("nginx",)
    threads = 3

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale)
        write_site(execution.directory)
        streams = {client: requests(client, rounds)[0] for client in range(CLIENTS)}
        count = CLIENTS * rounds * len(PLACES)

        def words(port: int) -> list[str]:
            return server_words(execution.directory, port)

        with execution.server(words) as server, execution.timed():
            answers = fetch(server, streams)
        answered = sum(b"".join(parts).count(b"HTTP/1.1 ") for parts in answers.values())
        if answered != count:
            raise ProgramFailedError(f"nginx gave {answered} answers to {count} requests")
        return Outcome(count, "requests")

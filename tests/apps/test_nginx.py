"""nginx serving files to clients at once: plain, compressed and through itself as a proxy."""

import hashlib
import os
import re
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from apprun.compare import Comparison, Outputs, Run
from apprun.process import Server

CLIENTS = 6
FETCH_SECONDS_MAX = 60.0
FILE_SIZES = (0, 1, 100, 4095, 4096, 20_000, 100_000)
FILE_TIME_S = 1_600_000_000

CONFIGURATION = """
daemon off;
master_process on;
worker_processes 2;
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


def requests(client: int, rounds: int) -> tuple[bytes, int]:
    """A pipeline of requests for one connection, and their number."""
    lines = []
    for number in range(rounds):
        for place in ("", "copied/", "packed/", "included/", "proxied/"):
            name = f"file{(number + client) % (len(FILE_SIZES) + 1)}.txt"
            # One file in eight does not exist.
            lines.append(f"GET /{place}{name} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n")
    joined = "\r\n".join(lines) + "Connection: close\r\n\r\n"
    return joined.encode(), len(lines)


def answer_digests(stream: bytes) -> Iterator[bytes]:
    """Headers and content digest of each answer; where content is cut into chunks is chance."""
    at = 0
    while at < len(stream):
        end = stream.index(b"\r\n\r\n", at) + 4
        headers = stream[at:end]
        at = end
        content = []
        if b"Transfer-Encoding: chunked" in headers:
            size = -1
            while size != 0:
                end = stream.index(b"\r\n", at)
                size = int(stream[at:end], 16)
                content.append(stream[end + 2 : end + 2 + size])
                at = end + 2 + size + 2
        else:
            length = re.search(rb"Content-Length: (\d+)", headers)
            assert length is not None, headers
            size = int(length[1])
            content.append(stream[at : at + size])
            at += size
        headers = re.sub(rb"\r\nDate: [^\r]+", b"", headers)
        yield headers + hashlib.sha256(b"".join(content)).hexdigest().encode()


def fetch(server: Server, streams: dict[int, bytes]) -> dict[int, list[bytes]]:
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
        assert time.monotonic() < deadline, "nginx does not answer"
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


def prepare(run: Run) -> None:
    for number, size in enumerate(FILE_SIZES):
        path = run.write(f"files/file{number}.txt", content(size))
        os.utime(path, (FILE_TIME_S, FILE_TIME_S))


def test_nginx(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        prepare(run)

        def words(port: int) -> list[str]:
            # Workers keep the rights that they need for the private directory.
            user = "user root;" if os.geteuid() == 0 else ""
            text = CONFIGURATION.format(root=run.directory, port=port, user=user)
            configuration = run.write("nginx.conf", text.encode())
            return ["nginx", "-c", str(configuration), "-e", str(run.directory / "error.log")]

        streams = {client: requests(client, 1500) for client in range(CLIENTS)}
        with run.server(words) as server:
            with run.timed():
                answers = fetch(server, {client: stream for client, (stream, _) in streams.items()})
            if run.variant.proves:
                run.prove(server)
            # The workers that served are replaced by new ones, which serve as well.
            run.tool(["nginx", "-c", str(run.directory / "nginx.conf"), "-s", "reload"])
            streams[CLIENTS] = requests(CLIENTS, 9)
            answers |= fetch(server, {CLIENTS: streams[CLIENTS][0]})
        log = Path(run.directory / "error.log").read_text()
        assert "reconfiguring" in log
        assert not re.search(r"\[(crit|alert|emerg)\]", log), log
        outputs = {}
        for client, (_, count) in streams.items():
            digests = list(answer_digests(b"".join(answers[client])))
            assert len(digests) == count
            outputs[f"answers to {client}"] = b"\n".join(digests)
        return outputs

    compare.servers("nginx", workload, what="6 clients; sendfile, gzip, SSI, proxy; reload")

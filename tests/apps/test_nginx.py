"""nginx serving files to clients at once: plain, compressed and through itself as a proxy."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from apprun.compare import Comparison, Outputs, Run
from apprun.process import Server, in_threads

CLIENTS = 6
FILE_SIZES = (0, 1, 100, 4095, 4096, 20_000, 100_000, 700_000)
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
            # One file in nine does not exist.
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


def fetch(server: Server, client: int, rounds: int, answers: dict[int, bytes]) -> None:
    """Sends all requests and reads until the server closes."""
    stream, count = requests(client, rounds)
    received = bytearray()
    with server.connect() as connection:

        def receive() -> None:
            while data := connection.recv(1 << 18):
                received.extend(data)

        in_threads([lambda: connection.sendall(stream), receive], 120)
    digests = list(answer_digests(bytes(received)))
    assert len(digests) == count
    answers[client] = b"\n".join(digests)


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

        answers: dict[int, bytes] = {}
        rounds = 270
        with run.server(words) as server:
            with run.timed():
                tasks = [
                    lambda client=client: fetch(server, client, rounds, answers)
                    for client in range(CLIENTS)
                ]
                in_threads(tasks, 120)
            if run.variant.proves:
                run.prove(server)
            # The workers that served are replaced by new ones, which serve as well.
            run.tool(["nginx", "-c", str(run.directory / "nginx.conf"), "-s", "reload"])
            fetch(server, CLIENTS, 9, answers)
        log = Path(run.directory / "error.log").read_text()
        assert "reconfiguring" in log
        assert not re.search(r"\[(crit|alert|emerg)\]", log), log
        return {f"answers to {client}": answers[client] for client in sorted(answers)}

    compare.servers("nginx", workload, what="6 clients; sendfile, gzip, SSI, proxy; reload")

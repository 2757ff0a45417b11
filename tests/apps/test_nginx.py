"""nginx serving files to clients at once: plain, compressed and through itself as a proxy."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from apprun.compare import Comparison, Outputs, Run, wait_for
from programs.nginx import CLIENTS, WORKERS, fetch, requests, server_words, write_site


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


def left(log: Path) -> int:
    """How many workers the log says have ended well."""
    return len(re.findall(r"worker process \d+ exited with code 0", log.read_text()))


def test_nginx(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        write_site(run.directory)

        def words(port: int) -> list[str]:
            return server_words(run.directory, port)

        streams = {client: requests(client, 1500) for client in range(CLIENTS)}
        with run.server(words) as server:
            with run.timed():
                answers = fetch(server, {client: stream for client, (stream, _) in streams.items()})
            if run.variant.proves:
                run.prove(server)
            # The workers that served are replaced by new ones, which serve as well. One that is
            # about to leave would still answer, but only what it has read by then.
            log = run.directory / "error.log"
            run.tool(["nginx", "-c", str(run.directory / "nginx.conf"), "-s", "reload"])
            wait_for(lambda: left(log) >= WORKERS, "the former workers have left")
            streams[CLIENTS] = requests(CLIENTS, 9)
            answers |= fetch(server, {CLIENTS: streams[CLIENTS][0]})
        told = log.read_text()
        assert "reconfiguring" in told
        assert not re.search(r"\[(crit|alert|emerg)\]", told), told
        outputs = {}
        for client, (_, count) in streams.items():
            digests = list(answer_digests(b"".join(answers[client])))
            assert len(digests) == count
            outputs[f"answers to {client}"] = b"\n".join(digests)
        return outputs

    compare.servers("nginx", workload, what="6 clients; sendfile, gzip, SSI, proxy; reload")

"""Interpreters and virtual machines; python3, with the most tests, has a file of its own."""

import re

import pytest
from apprun.compare import Comparison, Outputs, Run
from programs.layout import INPUTS


@pytest.mark.every_mode
def test_lua(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        words = ["lua5.4", str(INPUTS / "churn.lua"), str(run.size(500, 20))]
        return {"stdout": run.command(words).stdout}

    compare.commands("lua", workload, what="tables, strings, coroutines")


def test_perl(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        words = ["perl", str(INPUTS / "churn.pl"), str(run.size(500, 100))]
        return {"stdout": run.command(words, environment={"PERL_HASH_SEED": "0"}).stdout}

    compare.commands("perl", workload, what="hashes, regular expressions, threads, fork")


def test_ruby(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        words = ["ruby", str(INPUTS / "churn.rb"), str(run.size(600, 100))]
        return {"stdout": run.command(words).stdout}

    compare.commands("ruby", workload, what="objects, strings, threads, compaction")


def test_php(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        # Without php.ini, and so without loaded extensions: PHP loads those with RTLD_DEEPBIND,
        # so that their free is libc's whatever is preloaded, and they get the interpreter's blocks.
        words = ["php", "-n", str(INPUTS / "churn.php"), str(run.size(3000, 100))]
        return {"stdout": run.command(words, environment={"USE_ZEND_ALLOC": "0"}).stdout}

    compare.commands("php", workload, what="arrays, objects with cycles, JSON (USE_ZEND_ALLOC=0)")


def test_ghostscript(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        pages = run.size(30, 1)
        words = ["gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", f"-dpages={pages}"]
        page = str(INPUTS / "page.ps")
        outputs = {}
        for device, resolution in (("png16m", 100), ("pdfwrite", 72)):
            name = f"page-%02d.{device}" if device == "png16m" else f"pages.{device}"
            drawn = run.command([*words, f"-sDEVICE={device}", f"-r{resolution}", "-o", name, page])
            outputs[device] = drawn.stdout + drawn.stderr
        for path in sorted(run.directory.glob("page*")):
            # The document carries its time of birth and an identifier made from it.
            data = re.sub(rb"D:\d{14}[^)]*|\d{4}-\d\d-\d\dT[\d:+Z-]+", b"TIME", path.read_bytes())
            data = re.sub(rb"uuid:[\w-]+", b"ID", data)
            # Of bytes written as hexadecimal digits or, where that is shorter, with escapes.
            data = re.sub(rb"/ID \[.*\](?=\s*>>\s*startxref)", b"ID", data, flags=re.DOTALL)
            outputs[path.name] = data
        assert len(outputs) == pages + 3
        return outputs

    compare.commands("ghostscript", workload, what="PostScript to PNG and PDF")


def test_node(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        turns, generations = run.size(200, 20), run.size(5, 1)
        words = ["node", str(INPUTS / "workers.js"), str(turns), str(generations)]
        return {"stdout": run.command(words).stdout}

    compare.commands("node", workload, what="worker threads, buffers, zlib")


def test_java(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        compiled = run.command(["javac", "-d", ".", str(INPUTS / "Churn.java")])
        limits = ["-Xmx64m", "-XX:MaxDirectMemorySize=64m", "-XX:+UseSerialGC"]
        words = ["java", *limits, "-cp", ".", "Churn", str(run.size(700, 10))]
        return {
            "javac": compiled.stdout + compiled.stderr,
            "class": (run.directory / "Churn.class").read_bytes(),
            "stdout": run.command(words).stdout,
        }

    compare.commands("java", workload, what="javac; direct buffers, zlib, 400 short threads, GC")

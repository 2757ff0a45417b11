"""Positive controls: what the instruction table must catch, planted in small assembled samples."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import callgrind, disassembly, gate, peers, workshop
from harness.errors import BenchError

LIMITS = {
    "malloc": {"instructions": 16, "loads": 5, "stores": 1},
    "free": {"instructions": 17},
}

# Both hit paths as a compiler would write them; a line is planted where {malloc} or {free} stands.
SAMPLE = """
    .text
    .globl malloc, free
    .type malloc, {kind}
    .type free, @function
malloc:
    cmpq  $65536, %rdi
    ja    slow
    addq  $15, %rdi
    movq  heap@GOTTPOFF(%rip), %rdx
    movq  %fs:(%rdx), %rdx
    shrq  $4, %rdi
    leaq  classes(%rip), %rcx
    movzbl (%rcx,%rdi), %ecx
    movq  (%rdx,%rcx,8), %rsi
    movq  -8(%rsi), %rax
    {malloc}
    testq %rax, %rax
    je    slow
    subq  $8, %rsi
    movq  %rsi, (%rdx,%rcx,8)
    ret
    .size malloc, . - malloc
free:
    movq  heap@GOTTPOFF(%rip), %rdx
    movq  %fs:(%rdx), %rdx
    cmpq  %rdi, 456(%rdx)
    jb    slow
    movq  464(%rdx), %rcx
    movq  %rdi, %rax
    shrq  $16, %rax
    movl  (%rcx,%rax,4), %eax
    xorq  472(%rdx), %rax
    {free}
    cmpq  $56, %rax
    jae   slow
    movq  (%rdx,%rax,8), %rcx
    testl $511, %ecx
    je    slow
    movq  %rdi, (%rcx)
    addq  $8, (%rdx,%rax,8)
    ret
    .size free, . - free
slow:
    jmp   *elsewhere@GOTPCREL(%rip)
    .section .rodata
classes:
    .zero 4097
    .section .tdata, "awT", @progbits
    .globl heap
heap:
    .quad 0
    .section .note.GNU-stack, "", @progbits
"""


def sample(folder: Path, malloc: str = "", free: str = "", kind: str = "@function") -> Path:
    """A shared library made of the sample with something planted."""
    source, built = folder / "sample.s", folder / "sample.so"
    source.write_text(SAMPLE.format(malloc=malloc, free=free, kind=kind))
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", str(built), str(source)], check=True)
    return built


def problems(library: Path) -> list[str]:
    """All complaints of the static half of the gate."""
    code = disassembly.read(library)
    found = gate.load_time_choices(library)
    for name, path in gate.paths(code).items():
        found += gate.path_problems(path, LIMITS[name])
    return found


def test_clean_sample_passes_and_is_counted(tmp_path: Path) -> None:
    built = sample(tmp_path)
    assert problems(built) == []
    figures = {
        name: gate.path_figures(path) for name, path in gate.paths(disassembly.read(built)).items()
    }
    assert figures == {
        "malloc": {"instructions": 15, "loads": 5, "stores": 1, "prefetches": 0},
        "free": {"instructions": 17, "loads": 8, "stores": 2, "prefetches": 0},
    }


@pytest.mark.parametrize(
    ("function", "planted", "complaint"),
    [
        ("free", "nop", "18 instructions, at most 17"),
        ("malloc", "nop; nop", "17 instructions, at most 16"),
        ("malloc", "movq 8(%rdx), %r8", "6 loads, at most 5"),
        ("malloc", "movq %rsi, 8(%rdx)", "2 stores, at most 1"),
        ("malloc", "incq 8(%rdx)", "2 stores, at most 1"),
        ("malloc", "lock incq 8(%rdx)", "atomic instruction: lock incq"),
        ("free", "lock orq %rcx, 8(%rdx)", "atomic instruction: lock or"),
        ("free", "xchgq %rcx, 8(%rdx)", "atomic instruction: xchg"),
        ("free", "movq (%rdi), %r8", "touches the block: mov (%rdi)"),
        ("free", "movq %rcx, (%rdi)", "touches the block: mov %rcx,(%rdi)"),
        ("free", "cmpb $0, -16(%rdi)", "touches the block: cmpb"),
        ("free", "leaq -8(%rdi), %r8; movl (%r8), %r8d", "touches the block: mov (%r8)"),
        ("free", "movq %rdi, %r9; andq $-65536, %r9; movl 8(%r9), %r9d", "touches the block"),
        ("malloc", "movq (%rax), %r8", "touches the block: mov (%rax)"),
        ("malloc", "movq %rax, %r8; orq $0, 8(%r8)", "touches the block: orq"),
    ],
)
def test_planted_instruction_is_caught(
    tmp_path: Path, function: str, planted: str, complaint: str
) -> None:
    built = sample(tmp_path, **{function: planted})
    found = problems(built)
    assert any(function in problem and complaint in problem for problem in found), found


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [("call slow", "the hit path calls"), ("jmp *%rax", "the hit path jumps elsewhere")],
)
def test_leaving_the_path_is_caught(tmp_path: Path, planted: str, complaint: str) -> None:
    built = sample(tmp_path, malloc=planted)
    with pytest.raises(BenchError, match=complaint):
        problems(built)


def test_choice_at_load_time_is_caught(tmp_path: Path) -> None:
    built = sample(tmp_path, kind="@gnu_indirect_function")
    assert any("malloc: chosen at load time" in problem for problem in problems(built))


def test_prefetch_of_the_block_is_counted_as_such(tmp_path: Path) -> None:
    path = gate.paths(disassembly.read(sample(tmp_path, malloc="prefetchw (%rax)")))["malloc"]
    assert path.prefetches == 1
    assert (path.loads, path.stores, path.block_accesses) == (5, 1, ())


def test_code_off_the_static_path_is_caught() -> None:
    """The floor allocator starts its circle anew now and then: a run that the static path alone
    does not explain."""
    floor = peers.known()["floor"].library
    workshop.build()
    counts, pairs = gate.count_pattern(floor, "single")
    found = gate.unconfirmed(floor, counts, pairs, disassembly.read(floor))
    assert any("outside of the two paths" in problem for problem in found), found
    assert any("malloc: 'ret' ran" in problem for problem in found), found


def test_one_more_instruction_changes_a_row() -> None:
    row = {"paths": {"malloc": {"instructions": 15}}, "pairs": {"single": {"library": 32.0}}}
    more = {"paths": {"malloc": {"instructions": 16}}, "pairs": {"single": {"library": 33.0}}}
    assert gate.differences(row, row, 0) == []
    assert len(gate.differences(row, more, 0)) == 2
    assert gate.differences(row, more, 10) == []
    assert len(gate.differences(row, {"paths": row["paths"]}, 100)) == 1


def test_counts_are_read_from_callgrinds_file() -> None:
    counts = callgrind.parse(
        "positions: instr line\nevents: Ir\n\nob=/a.so\nfl=x.c\nfn=malloc\n0x10 0 5\n0x12 0 5\n"
        "cob=/b.so\ncfn=slow\ncalls=2 0x40 0\n0x14 0 90\n\nob=/b.so\nfn=slow\n0x40 0 90\n"
    )
    assert counts.total == 100
    assert counts.executed["/a.so", 0x10] == 5
    assert callgrind.function_calls(counts, "slow") == (2, 90)


def test_code_of_the_second_segment_is_the_librarys(tmp_path: Path) -> None:
    """Callgrind names no file for it, nor for stubs of calls to other files, which have no name."""
    library = tmp_path / "library.so"
    counts = callgrind.parse(
        f"ob={library}\nfn=malloc\n0x10 0 5\nob=???\nfn=cold\n0x4862a90 0 7\n"
        "fn=0x000000000010a280\n0x10a280 0 3\nfn=colder\n0x4862b00 0 2\n"
        "ob=/b.so\nfn=other\n0x40 0 90\n"
    )
    assert sum(callgrind.in_file(counts, library).values()) == 5 + 7 + 2
    assert counts.total == 107


def test_ticks_are_taken_off(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    counts = callgrind.Counts()
    counts.executed["elsewhere.so", 1] = 500
    counts.executed[str(library), 1] = 1000
    counts.calls[gate.TICK_FUNCTION] = 2
    counts.inclusive[gate.TICK_FUNCTION] = 200
    figures = gate.pair_figures(library, counts, 10)
    assert figures == {"library": 80.0, "with_calls_and_loop": 130.0}


def test_a_tick_that_has_another_name_is_noticed() -> None:
    counts = callgrind.Counts()
    for name in gate.SLOW_FUNCTIONS:
        counts.calls[name] = 1
    with pytest.raises(BenchError, match=gate.TICK_FUNCTION):
        gate.slow_figures(counts)

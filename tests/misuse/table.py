"""What hakmem must say to each program: one row per program, checked by run.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MODES = ("fast", "lean", "hardened", "research")

# A small block of the calling thread goes to its cache unseen; the bitmap tells when the cache is
# flushed, at the latest when the thread or the process ends. Hardened mode looks at once.
CACHED = ("fast", "lean", "research")


@dataclass(frozen=True)
class Row:
    """What a program must say: a regular expression in which {p} is the pointer, {b} and {n} the
    block it is about and that block's usable size, {k} the distance from {b} to {p}, {exe} the
    program's own path."""

    line: str
    late_in: tuple[str, ...] = ()  # modes that may notice later than at once
    quiet_in: tuple[str, ...] = ()  # modes that rightly say nothing
    line_if_late: str = ""  # also right where the line may come later
    at_exit_in: tuple[str, ...] = ()  # modes that notice when the process ends, not the thread
    many: bool = False  # one line for each of several blocks
    faults_in: tuple[str, ...] = ()  # modes in which the mistake itself is a memory fault
    says: Mapping[str, str] = field(default_factory=dict)  # a line of stdout, by mode


LIVE = "; expected the start of a live block"
# A freed block is in the cache, in the slab or held back, by mode and by what happened since.
FREED = "(?:free|cached|quarantined)"
# Only hardened mode, which has no caches, knows what other threads have.
OTHERS = "live(?: or cached by another thread)?"
CLASS = r"{n}-byte block \(class \d+\)"


def not_ours(what: str, where: str) -> Row:
    return Row(rf"{what}: {{p}} is not from this heap \(it lies in {where}\){LIVE}")


def nothing_there(what: str) -> Row:
    return Row(rf"{what}: {{p}} is not from this heap \(nothing is mapped there\){LIVE}")


def above(what: str) -> Row:
    return Row(rf"{what}: {{p}} is above the 47-bit address space{LIVE}")


def inside_small(what: str, late_in: tuple[str, ...] = (), *, state: str = "live") -> Row:
    where = rf"lies {{k}} bytes inside the {CLASS} at {{b}}, {state}"
    return Row(rf"{what}: {{p}} {where}{LIVE}", late_in)


def inside_big(what: str, kind: str) -> Row:
    where = rf"lies {{k}} bytes inside the {kind} block of {{n}} bytes at {{b}}, live"
    return Row(rf"{what}: {{p}} {where}{LIVE}")


def inside_large(what: str) -> Row:
    return inside_big(what, "large")


def inside_huge(what: str) -> Row:
    return inside_big(what, "huge")


def in_tail(what: str, late_in: tuple[str, ...] = ()) -> Row:
    where = r"lies where no block is, in the tail of a slab; its last is a \d+-byte block"
    return Row(rf"{what}: {{p}} {where} \(class \d+\){LIVE}", late_in)


def free_small(what: str, late_in: tuple[str, ...] = ()) -> Row:
    """The first free of a late row may have emptied the slab, which then is one no more."""
    gone = rf"{FREE}: {{p}} lies in free heap space{LIVE}"
    return Row(
        rf"{what}: {{p}} is the start of a {CLASS}, {FREED}{LIVE}", late_in, line_if_late=gone
    )


def free_big(what: str, kind: str) -> str:
    return rf"{what}: {{p}} is the start of a {kind} block of {{n}} bytes, free{LIVE}"


def free_large(what: str) -> Row:
    return Row(free_big(what, "large"))


def free_huge(what_freed: str, what_invalid: str) -> Row:
    """A freed huge block may have left the address space, and then nothing is known of it; or all
    but its beginning."""
    gone = rf"{what_invalid}: {{p}} is not from this heap \(nothing is mapped there\){LIVE}"
    kept = rf"{what_freed}: {{p}} is the start of a huge block of \d+ bytes, free{LIVE}"
    return Row(f"(?:{kept}|{gone})")


def mismatch(claimed: int, block: str = CLASS) -> Row:
    """A size told to free that is not the block's: compared in hardened mode only."""
    expected = rf"; expected a size that malloc serves with {{n}} bytes, not {claimed}"
    return Row(rf"size mismatch: {{p}} is the start of a {block}, live{expected}", quiet_in=CACHED)


WRITTEN_AT_START = rf"{{p}} is the start of a {CLASS}"
WRITTEN_INSIDE = rf"{{p}} lies {{k}} bytes inside the {CLASS} at {{b}}"
# Where the first byte that is not zero depends on an address.
WRITTEN_SOMEWHERE = (
    r"0x[0-9a-f]+ (?:is the start of a|lies \d+ bytes inside the)"
    r" \d+-byte block \(class \d+\)(?: at 0x[0-9a-f]+)?"
)


def written(where: str, *, many: bool = False) -> Row:
    return Row(
        rf"write after free: {where}, quarantined; expected zero, as since its free",
        quiet_in=CACHED,
        at_exit_in=("hardened",),
        many=many,
    )


SOME_BLOCK = r"\d+-byte block \(class \d+\) at 0x[0-9a-f]+"


def changed(distance: int | str, block: str, *, many: bool = False) -> Row:
    """A changed byte of a live block's slack: hardened mode looks when the block is freed."""
    where = rf"0x[0-9a-f]+ was changed, {distance} bytes behind the end of the {block}, live"
    return Row(
        rf"buffer overflow: {where}; expected no write outside the block",
        quiet_in=CACHED,
        many=many,
    )


# Freed huge blocks go back to the system at once.
UNMAPS = ("hardened",)
DISTANCES = (1, 8, 64, 4096)
STALE = (
    *("read_after_free_small", "read_after_free_medium", "read_after_free_large"),
    *("stale_data_small", "stale_data_large"),
)
SILENT = Row("", quiet_in=MODES)

FREE = "invalid free"
DOUBLE = "double free"
REALLOC = "invalid realloc"
REALLOC_FREED = "realloc of a freed block"
USABLE = "invalid malloc_usable_size"
USABLE_FREED = "malloc_usable_size of a freed block"

TABLE: dict[str, Row] = {
    # Not from this heap.
    "free_stack": not_ours(FREE, r"\[stack\] rw-p"),
    "free_thread_stack": not_ours(FREE, r"\[anon\] rw-p"),
    "free_global": not_ours(FREE, "{exe} rw-p"),
    "free_rodata": not_ours(FREE, "{exe} r--p"),
    "free_text": not_ours(FREE, "{exe} r-xp"),
    "free_anonymous_mapping": not_ours(FREE, r"\[anon\] rw-p"),
    "free_heap_lookalike": not_ours(FREE, r"\[anon\] rw-p"),
    "free_prot_none": not_ours(FREE, r"\[anon\] ---p"),
    "free_brk": not_ours(FREE, r"\[heap\] rw-p"),
    "free_other_library": not_ours(FREE, r"\S*/libmisuse_foreign\.so rw-p"),
    "free_other_libc": not_ours(FREE, r"(?:\[heap\]|\[anon\]) rw-p"),
    "free_unmapped": nothing_there(FREE),
    "free_one": nothing_there(FREE),
    "free_small_integer": nothing_there(FREE),
    "free_page_zero": nothing_there(FREE),
    "free_low_64_kib": nothing_there(FREE),
    "free_minus_one": above(FREE),
    "free_minus_16": above(FREE),
    "free_kernel_address": above(FREE),
    "free_noncanonical": above(FREE),
    "free_bit_47": above(FREE),
    "free_bit_56": above(FREE),
    "free_tagged_block": above(FREE),
    "free_metadata": not_ours(FREE, r"\[anon\] rw-p"),
    "free_allocator_data": not_ours(FREE, r"\S*/libhakmem\.so\S* rw-p"),
    # Inside a small block, or beside one.
    "free_interior_1": inside_small(FREE, CACHED),
    "free_interior_4": inside_small(FREE, CACHED),
    "free_interior_8": inside_small(FREE, CACHED),
    "free_interior_16": inside_small(FREE, CACHED),
    "free_interior_100": inside_small(FREE, CACHED),
    "free_interior_medium": inside_small(FREE, CACHED),
    "free_interior_aligned": inside_small(FREE, CACHED),
    "free_interior_other_thread": inside_small(FREE, state=OTHERS),
    "free_before_block": inside_small(FREE, CACHED),
    # The cache may have taken it from the slab already.
    "free_never_handed_out": Row(
        rf"(?:{FREE}: {{p}} is the start of a {CLASS}, never handed out"
        rf"|{DOUBLE}: {{p}} is the start of a {CLASS}, {FREED}){LIVE}",
        late_in=CACHED,
    ),
    "free_slab_tail": in_tail(FREE, CACHED),
    # Inside a large or huge block.
    "free_large_1": inside_large(FREE),
    "free_large_16": inside_large(FREE),
    "free_large_page": inside_large(FREE),
    "free_large_64_kib": inside_large(FREE),
    "free_large_other_thread": inside_large(FREE),
    "free_huge_16": inside_huge(FREE),
    "free_huge_page": inside_huge(FREE),
    "free_huge_64_kib": inside_huge(FREE),
    "free_huge_1_mib": inside_huge(FREE),
    "free_huge_63_mib": inside_huge(FREE),
    # Double free.
    "double_free_tiny": free_small(DOUBLE, CACHED),
    "double_free_small": free_small(DOUBLE, CACHED),
    "double_free_medium": free_small(DOUBLE, CACHED),
    "double_free_aligned": free_small(DOUBLE, CACHED),
    "double_free_calloc": free_small(DOUBLE, CACHED),
    "double_free_large": free_large(DOUBLE),
    "double_free_large_aligned": free_large(DOUBLE),
    "double_free_huge": free_huge(DOUBLE, FREE),
    "double_free_after_one": free_small(DOUBLE, CACHED),
    "double_free_after_many": free_small(DOUBLE, CACHED),
    "double_free_after_other_sizes": free_small(DOUBLE, CACHED),
    "double_free_after_realloc": free_small(DOUBLE, CACHED),
    "double_free_after_reuse": free_small(DOUBLE, CACHED),
    "double_free_owner_gone": free_small(DOUBLE, CACHED),
    "double_free_other_thread": free_small(DOUBLE, CACHED),
    "double_free_two_other_threads": free_small(DOUBLE, CACHED),
    "double_free_owner_then_other": free_small(DOUBLE, CACHED),
    "double_free_other_then_owner": free_small(DOUBLE, CACHED),
    "double_free_at_the_same_moment": free_small(DOUBLE, CACHED),
    "double_free_large_other_thread": free_large(DOUBLE),
    "double_free_large_at_the_same_moment": free_large(DOUBLE),
    "double_free_large_after_realloc": free_large(DOUBLE),
    # Its start may be forgotten once it has become part of a longer free run.
    "double_free_large_after_others": Row(
        rf"(?:{free_big(DOUBLE, 'large')}|{FREE}: {{p}} lies in free heap space{LIVE})"
    ),
    # The same by a thread whose size class has left the phase in which each operation is checked.
    "warm_double_free_tiny": free_small(DOUBLE, CACHED),
    "warm_double_free_small": free_small(DOUBLE, CACHED),
    "warm_double_free_medium": free_small(DOUBLE, CACHED),
    "warm_double_free_after_reuse": free_small(DOUBLE, CACHED),
    "warm_double_free_other_thread": free_small(DOUBLE, CACHED),
    "warm_free_interior_8": inside_small(FREE, CACHED),
    "warm_free_interior_16": inside_small(FREE, CACHED),
    "warm_free_slab_tail": in_tail(FREE, CACHED),
    "warm_realloc_freed": free_small(REALLOC_FREED),
    # realloc looks at the bitmap in every mode.
    "realloc_stack": not_ours(REALLOC, r"\[stack\] rw-p"),
    "realloc_small_integer": nothing_there(REALLOC),
    "realloc_minus_one": above(REALLOC),
    "realloc_anonymous_mapping": not_ours(REALLOC, r"\[anon\] rw-p"),
    "realloc_interior": inside_small(REALLOC),
    "realloc_interior_large": inside_large(REALLOC),
    "realloc_freed": free_small(REALLOC_FREED),
    "realloc_freed_same_size": free_small(REALLOC_FREED),
    "realloc_freed_to_zero": free_small(f"(?:{REALLOC_FREED}|{DOUBLE})", CACHED),
    "realloc_freed_other_thread": free_small(REALLOC_FREED),
    "realloc_freed_large": free_large(REALLOC_FREED),
    "realloc_freed_huge": free_huge(REALLOC_FREED, REALLOC),
    "realloc_metadata": not_ours(REALLOC, r"\[anon\] rw-p"),
    "realloc_prot_none": not_ours(REALLOC, r"\[anon\] ---p"),
    "realloc_noncanonical": above(REALLOC),
    "realloc_text": not_ours(REALLOC, "{exe} r-xp"),
    "realloc_unmapped": nothing_there(REALLOC),
    "realloc_slab_tail": in_tail(REALLOC),
    "realloc_interior_other_thread": inside_small(REALLOC, state=OTHERS),
    # So does malloc_usable_size.
    "usable_size_prot_none": not_ours(USABLE, r"\[anon\] ---p"),
    "usable_size_noncanonical": above(USABLE),
    "usable_size_minus_one": above(USABLE),
    "usable_size_text": not_ours(USABLE, "{exe} r-xp"),
    "usable_size_unmapped": nothing_there(USABLE),
    "usable_size_slab_tail": in_tail(USABLE),
    "usable_size_stack": not_ours(USABLE, r"\[stack\] rw-p"),
    "usable_size_small_integer": nothing_there(USABLE),
    "usable_size_kernel_address": above(USABLE),
    "usable_size_interior": inside_small(USABLE),
    "usable_size_interior_huge": inside_huge(USABLE),
    "usable_size_freed": free_small(USABLE_FREED),
    "usable_size_freed_large": free_large(USABLE_FREED),
    # Sizes told to free: compared in hardened mode only.
    "free_sized_mismatch": mismatch(5000),
    "free_sized_mismatch_large": mismatch(208, "large block of {n} bytes"),
    "free_sized_huge": mismatch(68157440, "huge block of {n} bytes"),
    "free_sized_freed": free_small(DOUBLE, CACHED),
    "free_aligned_sized_mismatch": mismatch(64),
    "free_aligned_sized_alignment": mismatch(208),
    "delete_sized_mismatch": mismatch(5000),
    "delete_array_sized_mismatch": mismatch(32),
    "delete_aligned_sized_mismatch": mismatch(64),
    "delete_sized_mismatch_large": mismatch(208, "large block of {n} bytes"),
    "delete_twice": free_small(DOUBLE, CACHED),
    "delete_interior": inside_small(FREE, CACHED),
    # Which function made a block is not known: nothing tells these from right ones.
    "malloc_then_delete": SILENT,
    "malloc_then_delete_array": SILENT,
    "new_then_free": SILENT,
    "new_array_then_free": SILENT,
    "new_array_then_delete": SILENT,
    "new_aligned_then_delete": SILENT,
    # Writes and reads outside blocks in use.
    **{f"overflow_small_{n}": changed(0, f"{CLASS} at {{b}}") for n in (1, 8, 64)},
    # The slack of the blocks behind is changed as well.
    "overflow_small_4096": changed(r"\d+", SOME_BLOCK, many=True),
    # The slack of the block below is changed.
    **{f"underflow_small_{n}": changed(r"\d+", SOME_BLOCK) for n in (1, 8, 64)},
    "underflow_small_4096": changed(r"\d+", SOME_BLOCK, many=True),
    **{f"overflow_large_{n}": SILENT for n in DISTANCES},
    **{f"underflow_large_{n}": Row("", quiet_in=MODES, faults_in=("hardened",)) for n in DISTANCES},
    # Hardened mode looks when a block leaves the quarantine: not at large ones, not at one that has
    # left it before the write, and zeros change nothing.
    **{
        f"write_after_free_{kind}": written(WRITTEN_AT_START)
        for kind in ("ended_thread", "first_word", "other_thread", "through_realloc", "whole")
    },
    "write_after_free_second_word": written(WRITTEN_INSIDE),
    "write_after_free_last_word": written(WRITTEN_INSIDE),
    "write_after_free_linked_to_itself": written(WRITTEN_SOMEWHERE),
    **{
        f"write_after_free_{kind}": written(WRITTEN_SOMEWHERE, many=True)
        for kind in ("aimed", "aimed_encoded", "aimed_tiny", "several")
    },
    **{f"write_after_free_{kind}": SILENT for kind in ("large", "late", "links_cut", "medium")},
    "write_after_free_huge": Row("", quiet_in=MODES, faults_in=UNMAPS),
    "read_after_free_huge": Row("", quiet_in=MODES, faults_in=UNMAPS),
    **{name: Row("", quiet_in=MODES, says={"hardened": "clear"}) for name in STALE},
}


def row_of(name: str) -> Row:
    """The row of a program. Contract cases are no mistakes: nothing may be said."""
    return SILENT if name.startswith("contract_") else TABLE[name]

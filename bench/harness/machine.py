"""What the manifest says about the machine and the moment."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from .layout import TOP


def _first_line(file: str) -> str:
    try:
        return Path(file).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return ""


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def name() -> str:
    """A short name for result folders that says nothing private: processor and CPU count."""
    words = re.sub(r"\(.*?\)|\bprocessor\b|\bcpu\b|@.*", " ", cpu_model().lower())
    slug = "-".join(re.findall(r"[a-z0-9]+", words)) or "unknown"
    return f"{slug}-{os.cpu_count()}cpu"


def available_bytes() -> int:
    """Memory that programs can take without swapping."""
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0


def load() -> float:
    """Runnable processes over the last minute: the first thing to look at when a row is odd."""
    return os.getloadavg()[0]


def describe() -> dict[str, object]:
    """Everything about the machine that can move a figure."""
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    defrag = re.search(r"\[([\w+]+)\]", _first_line("/sys/kernel/mm/transparent_hugepage/defrag"))
    huge = re.search(r"\[(\w+)\]", _first_line("/sys/kernel/mm/transparent_hugepage/enabled"))
    commit = subprocess.run(
        ["git", "-C", str(TOP), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "machine": name(),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else 0,
        "huge_pages": huge.group(1) if huge else "unknown",
        "huge_pages_defrag": defrag.group(1) if defrag else "unknown",
        "aslr": _first_line("/proc/sys/kernel/randomize_va_space"),
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "none",
        "overcommit": _first_line("/proc/sys/vm/overcommit_memory"),
        "load_average": load(),
        "commit": commit,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }

"""The resident memory of this process, now and at its peak, as Linux tells it.

`getrusage` will not do: a new process begins with the peak of the one that started it.
"""

from pathlib import Path

PROCESS = Path("/proc/self")


def forget_peak() -> int:
    """Begin to look for a peak; bytes that are resident now."""
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    return _kibibytes("VmRSS:") * 1024


def peak_bytes() -> int:
    """The most bytes that were resident since `forget_peak`."""
    return _kibibytes("VmHWM:") * 1024


def _kibibytes(name: str) -> int:
    lines = (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

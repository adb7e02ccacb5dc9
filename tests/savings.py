"""What tests leave out to save time, in their own process and in forked ones: flushes, and the drawing of pictures."""

import os
import stat
from pathlib import Path
from typing import Any

real_fsync = os.fsync


def fsync_without_disk(descriptor: int) -> None:
    """Skip files and directories: tests cannot observe a flush."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        real_fsync(descriptor)


def save_undrawn(figure: Any, target: Any, **options: Any) -> None:
    """Instead of `Figure.savefig`: a file of one byte more than a PNG's signature. Pictures in memory are drawn."""
    if isinstance(target, str | Path):
        Path(target).write_bytes(b"\x89PNG\r\n\x1a\n.")
    else:
        figure.canvas.print_figure(target, **options)


def in_forked_processes() -> None:
    """Called by the fork server before its first fork."""
    from matplotlib.figure import Figure

    os.fsync = fsync_without_disk
    Figure.savefig = save_undrawn  # type: ignore[method-assign]

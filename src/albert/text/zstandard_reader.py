"""Zstandard, for `albert.text.readers`: needs the library `zstandard`."""

import zstandard

LARGEST_WINDOW = 1 << 31  # `zstd --long=31`, as some published corpora are packed; used as far as data fill it


class ZstandardDecompressor:
    """One frame; skippable frames are frames without data."""

    needs_input = True

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """What the next packed bytes hold, all of it.

        Raises:
            ValueError: they are damaged.
        """
        try:
            return self._stream.decompress(data)
        except zstandard.ZstdError as error:
            raise ValueError(str(error).removeprefix("zstd decompressor error: ")) from error

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        """What followed its end."""
        return self._stream.unused_data

"""Bytes as they were before somebody packed them: gzip, bzip2 and xz, known by how they begin and not by a name.

What is torn or damaged is read as far as it goes. However much is packed in a few bytes, memory stays bounded.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

MAX_UNPACKED_BYTES = 64 << 30
"""Of what is packed: ten megabytes may be packed from any amount."""
MAX_XZ_MEMORY_BYTES = 256 << 20
"""``xz -9`` needs 65 MiB; what was packed to need more is not read."""

_PACKED_BYTES = 32 << 10
_PIECE_BYTES = 16 << 10
"""At most so much before a damage is lost with it."""
_LONGEST_MAGIC_BYTES = 6
_GZIP_WBITS = 31


class ByteStream(Protocol):
    """Anything that bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, fewer at the end."""
        ...


class _Decompressor(Protocol):
    """Undoes one packed stream piece by piece; the form of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecompressor:
    """zlib's in that form."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=_GZIP_WBITS)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class _Packing(NamedTuple):
    magic: bytes
    decompressor: Callable[[], _Decompressor]
    damage: type[Exception]
    """What its decompressor raises."""


_PACKINGS = {
    "gzip": _Packing(b"\x1f\x8b", _GzipDecompressor, zlib.error),
    "bzip2": _Packing(b"BZh", bz2.BZ2Decompressor, OSError),
    "xz": _Packing(b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY_BYTES), lzma.LZMAError),
}
_NOT_READ = {"zstd": b"\x28\xb5\x2f\xfd", "zip": b"PK\x03\x04", "lz4": b"\x04\x22\x4d\x18"}


class Unpacked:
    """The plain bytes of a stream, packed or not."""

    def __init__(self, stream: ByteStream) -> None:
        """Look at how `stream` begins. Raises `OSError`, as `read` does, where the stream itself can't be read."""
        self._stream = stream
        self._start = stream.read(_LONGEST_MAGIC_BYTES)
        self._rest = b""
        self._pieces = self._unpacked()
        self.problem = ""
        """Why there is less than there should be, for people; known when all was read."""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` plain bytes, fewer at the end."""
        parts, count = [self._rest], len(self._rest)
        while count < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            count += len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]

    def _given(self) -> Iterator[bytes]:
        """Yield the stream as it is."""
        data = self._start
        while data:
            yield data
            data = self._stream.read(_PACKED_BYTES)

    def _unpacked(self) -> Iterator[bytes]:
        for name, magic in _NOT_READ.items():
            if self._start.startswith(magic):
                self.problem = f"it is packed by {name}, which is not read: unpack it first"
                return
        for name, packing in _PACKINGS.items():
            if self._start.startswith(packing.magic):
                yield from self._bounded(name, self._undone(name, packing))
                return
        yield from self._given()

    def _bounded(self, name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        left_bytes = MAX_UNPACKED_BYTES
        for piece in pieces:
            if left_bytes <= 0:
                self.problem = f"only the first {MAX_UNPACKED_BYTES >> 20} MiB that {name} packed in it were read"
                return
            left_bytes -= len(piece)
            yield piece

    def _undone(self, name: str, packing: _Packing) -> Iterator[bytes]:
        """Yield what was packed, of one packed stream after another, as ``cat a.gz b.gz`` makes them."""
        given = self._given()
        data, decompressor = next(given), packing.decompressor()
        while True:
            try:
                piece = decompressor.decompress(data, _PIECE_BYTES)
            except packing.damage as error:
                self.problem = f"it is damaged and was read up to there: {name}: {error}"
                return
            if piece:
                yield piece
            if decompressor.eof:
                data = decompressor.unused_data or next(given, b"")
                if not data.strip(b"\0"):
                    return
                decompressor = packing.decompressor()
            elif decompressor.needs_input:
                data = next(given, b"")
                if not data and not piece:
                    self.problem = f"it is torn and was read as far as it goes: {name} has no end"
                    return
            else:
                data = b""

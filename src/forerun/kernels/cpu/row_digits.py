"""Records of digits: activations as products with packed weights read them."""

from __future__ import annotations

from typing import Final

from forerun.kernels.cpu.codegen.lanes import padded
from forerun.kernels.cpu.library import DIGIT_MAKERS, Library
from forerun.kernels.cpu.products.digits import BLOCK_LEN, RecordShape
from forerun.kernels.cpu.runtime.program import Digits, Rows

_BLOCKS_PER_CHUNK: Final = 12


class RowDigits:
    """Adds the digits of rows to a pass: written by the step that makes the rows if that step can,
    else by a step of their own."""

    def __init__(self, library: Library, num_digits: int) -> None:
        self._library = library
        self._records = RecordShape(num_digits)
        self.are_needed = False  # by any product

    def need(self) -> None:
        """Note that a product needs digits, and compile the operations that write them."""
        if not self.are_needed:
            self.are_needed = True
            for maker in DIGIT_MAKERS:
                self._library.digits(maker)

    def of(self, x: Rows) -> Digits:
        """Return x as records, written once for all products with x."""
        if x.digits is None:
            digits, (block, *_) = x.digits = self._room_for(x)
            num_blocks = x.width // BLOCK_LEN
            num_chunks = x.num_rows * -(-num_blocks // _BLOCKS_PER_CHUNK)
            sizes = num_blocks, _BLOCKS_PER_CHUNK, digits.address, block
            address, maker = x.program.last_made or (0, "")
            if address != x.address or digits.address in x.program.last_args:
                x.program.add(self._library.digits("write"), num_chunks, *x.place, *sizes)
            else:
                num_chunks = x.num_rows if maker == "norm" else num_chunks
                x.program.amend_last(self._library.digits(maker), num_chunks, *sizes)
        return x.digits

    def written_with(self, x: Rows) -> tuple[int, ...]:
        """Return where the step that makes x is to write its records, and the bytes from block to
        block; empty if no product needs digits."""
        if not self.are_needed:
            return ()
        digits, (block, *_) = x.digits = self._room_for(x)
        return digits.address, block

    def _room_for(self, x: Rows) -> Digits:
        """Return the same as `of`, before any step writes it."""
        num_blocks, record_bytes = x.width // BLOCK_LEN, self._records.num_bytes
        width = padded(num_blocks * record_bytes // 4)  # records may fill the padding, too
        block = self._records.block_stride(x.num_rows)
        return Rows(x.program, x.num_rows, width), (block, num_blocks * block, record_bytes)

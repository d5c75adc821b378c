"""Prefetches into L2, for a kernel that may not read yet; nothing waits for them."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def ask_for(AT, NUM_BYTES: tl.constexpr):
    """Prefetch NUM_BYTES, a multiple of 16, from each address in AT on."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [AT, tl.full(AT.shape, NUM_BYTES, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def ask_for_sectors(AT, meant):
    """Prefetch the 32-byte sector of each address in AT where `meant` is true."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $2, 0;
        @p prefetch.global.L2 [$1];
        mov.u32 $0, 0;
        }""",
        "=r,l,r",
        [AT, meant.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )

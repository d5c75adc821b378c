"""Pages of one pool that the pass in the making will use."""

from __future__ import annotations

from bisect import bisect_right

from forerun.engine.pool import Pool


class PagePromises:
    """Grants come before rows are reserved; what is promised is no longer there to give."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._promised: dict[int, int] = {}
        self._num_promised = 0

    def num_fitting(self, request_id: int, num_rows: int, most: int) -> int:
        """How many more rows than `num_rows` there are pages for, up to `most`; -1: not even 0."""
        left = self._pool.num_free - self._num_promised + self._promised.get(request_id, 0)

        def num_missing(num: int) -> int:
            return self._pool.num_missing(request_id, num_rows + num)

        if num_missing(most) <= left:
            return most
        return bisect_right(range(most), left, key=num_missing) - 1

    def promise(self, request_id: int, num_rows: int) -> None:
        """The pages for `num_rows` rows, in the place of what it was promised before."""
        self._num_promised -= self._promised.get(request_id, 0)
        self._promised[request_id] = self._pool.num_missing(request_id, num_rows)
        self._num_promised += self._promised[request_id]

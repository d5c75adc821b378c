"""`python -m forerun` is the command `forerun`; here is what can go wrong before it is loaded."""

from __future__ import annotations

import sys
from typing import Final

from forerun.errors import NO_MEMORY, is_lack_of_memory

_LEAST_ADDRESS_SPACE: Final = 2**28  # below it, numpy's libraries end the process themselves


def main() -> None:
    limit = _address_space()
    try:
        if limit is not None and limit < _LEAST_ADDRESS_SPACE:
            raise MemoryError
        from forerun.cli import main as run
    except KeyboardInterrupt:
        # OpenBLAS interrupts its own process where it gets no memory for its threads.
        sys.exit(130 if limit is None else _no_memory())
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        sys.exit(_no_memory())
    run()


def _address_space() -> int | None:
    """What `ulimit -v` allows this process; None where there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _no_memory() -> int:
    print(f"forerun: {NO_MEMORY}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()

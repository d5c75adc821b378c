"""Map a file into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """Return the whole file as uint8 [bytes], mapped read-only."""
    try:
        if not path.is_file():
            raise InvalidWeights(f"{path} does not exist; check the path.")
        if path.stat().st_size == 0:
            raise InvalidWeights(f"{path} is empty; download it again.")
        return np.asarray(np.memmap(path, np.uint8, mode="r"))
    except OSError as error:
        raise InvalidWeights(f"{path} cannot be read ({error.strerror}); check it.") from None

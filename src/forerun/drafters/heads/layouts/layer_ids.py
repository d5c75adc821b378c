"""Which hidden states of the target an EAGLE-3 head of another engine reads.

    ours            after so many layers                     2, 15, 27 of 30
    speculators     the input of this layer: the same        2, 15, 27
    eagle           the output of this layer                 1, 14, 26

vLLM reads `eagle_aux_hidden_state_layer_ids` as it stands: 0 is the embedding, n the output of
layer n − 1 (`_maybe_add_hidden_state(…, idx + 1, …)` after layer idx of its models). SGLang reads
it inside `eagle_config` and adds 1 (`set_eagle3_layers_to_capture`). If a config names none, both
take 2, L // 2 and L − 3 of L layers; SpecForge and ModelOpt train on the same layers, which they
call 1, L // 2 − 1 and L − 4. Ids that are one off cost most guesses, and nothing else shows it:
vllm#43671, vllm#50170.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from forerun.drafters.heads.config import check_layers
from forerun.errors import InvalidWeights
from forerun.models.fields import Fields

LAYER_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_FIRST: Final = {"speculators": 0, "eagle": 1}  # our number for the layout's 0
_READER: Final = {"speculators": "vLLM", "eagle": "SGLang"}


def read_layer_ids(layout: str, named: Fields, outside: Fields) -> tuple[int, ...]:
    """Return the layers of a config in our numbers.

    The layout has its ids in `named`; ids in `outside` are another engine's."""
    if named.get(LAYER_IDS) is None:
        usual = "2, L // 2, L - 3" if layout == "speculators" else "1, L // 2 - 1, L - 4"
        elsewhere = " here" if outside.get(LAYER_IDS) is None else " where SGLang reads it"
        raise InvalidWeights(
            f"{named.source}: {LAYER_IDS!r} is missing{elsewhere}, and a wrong guess of the layers "
            "would ruin every guess of the head; write in those that it was trained on, usually "
            f"[{usual}] of the target's L layers."
        )
    ids = named.integers(LAYER_IDS)
    check_layers(ids, f"{named.source}: {LAYER_IDS!r}")
    return tuple(layer + _FIRST[layout] for layer in ids)


def check_usual(layout: str, layers: tuple[int, ...], num_layers: int, path: Path) -> None:
    """Raise `InvalidWeights` if the layers are the usual ones in another engine's numbers."""
    usual = (2, num_layers // 2, num_layers - 3)
    steps = {layer - due for layer, due in zip(layers, usual, strict=False)}
    is_off = len(layers) == 3 and steps in ({1}, {-1}) and list(usual) == sorted(set(usual))
    if not is_off:
        return
    ids, due = ([layer - _FIRST[layout] for layer in found] for found in (layers, usual))
    raise InvalidWeights(
        f"{path}: {LAYER_IDS!r} {ids} are one off those that EAGLE-3 usually looks at in a target "
        f"of {num_layers} layers, which {_READER[layout]} calls {due}; write in {due} if "
        "it looks at these."
    )

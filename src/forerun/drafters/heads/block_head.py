"""A block of guesses in one pass, in the line of DFlash and P-EAGLE (2026).

    row j      token j + 1, and the target's hidden states at position j
    place d    the same as the last row, and a learnt vector of that place; d = 1, 2, …

    x = fc([norm(embedding) ; norm(feature of each layer)]) + vector of the place
    x = x + attention(norm(x)) ; x = x + mlp(norm(x))           for each layer, causal
    h = norm(x) ; logits of the place = lm_head · h             of the draft vocabulary

Places do not know which token was guessed before them. What they owe to it is a product of low
rank, gated by h (a Markov step), which costs little enough to be taken one place after another:

    logits of place d += out · ((1 + gate · h) ∘ embedding of the guess at d - 1)
"""

from __future__ import annotations

from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T


def block_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """The weights that such a head has."""
    c, size = config, config.target_hidden_size
    q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        **{f"fc_norm.{idx}.weight": (size,) for idx in range(len(c.layers) + 1)},
        "fc.weight": (size, (len(c.layers) + 1) * size),
        "places.weight": (c.num_guesses - 1, size),
    }
    for idx in range(c.num_hidden_layers):
        attn, mlp = f"layers.{idx}.self_attn", f"layers.{idx}.mlp"
        shapes |= {
            f"layers.{idx}.input_layernorm.weight": (size,),
            f"{attn}.q_proj.weight": (q_len, size),
            f"{attn}.k_proj.weight": (kv_len, size),
            f"{attn}.v_proj.weight": (kv_len, size),
            f"{attn}.o_proj.weight": (size, q_len),
            f"layers.{idx}.post_attention_layernorm.weight": (size,),
            f"{mlp}.gate_proj.weight": (c.intermediate_size, size),
            f"{mlp}.up_proj.weight": (c.intermediate_size, size),
            f"{mlp}.down_proj.weight": (size, c.intermediate_size),
        }
    return shapes | {
        "norm.weight": (size,),
        "lm_head.weight": (c.draft_vocab_size, size),
        "markov.embedding.weight": (c.draft_vocab_size, c.markov_rank),
        "markov.gate.weight": (c.markov_rank, size),
        "markov.out.weight": (c.draft_vocab_size, c.markov_rank),
        D2T: (c.draft_vocab_size,),
    }

"""Faults of Paddle and paddlenlp that are corrected here, one file each, and the means to do it narrowly.

Each file is named after its fault, says what upstream does, and has a function correct() that puts it right in this
process and may be called twice. CORRECTIONS names those that every training process needs; those of one model family
are named in its module of launch/families.
"""

import importlib
from collections.abc import Iterable

CORRECTIONS: tuple[str, ...] = (
    "import_of_everything",  # first: before paddlenlp is imported
    "store_aborts_at_exit",
    "stage1_frozen_parameters",
    "stage3_weight_decay",
    "stage3_frozen_parameters",
    "shared_weight_counted_twice",
    "half_precision_norm",
    "master_gradients_stay_scaled",
    "pipeline_gradient_shapes",
    "generation_of_sharded_logits",
    "llama_fused_rms_norm_flag",
    "chat_templates_compiled",
    "lora_of_fused_weights",
    "special_ids_of_every_token",
)


def correct(names: Iterable[str] = CORRECTIONS) -> None:
    """Apply corrections by the names of their files. For a process that has imported Paddle."""
    for name in names:
        importlib.import_module(f"launch.upstream.{name}").correct()

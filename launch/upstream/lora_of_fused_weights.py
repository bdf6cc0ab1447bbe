"""LoRA beside a fused weight is sharded wrongly under tensor parallel, without a warning: GLM, ChatGLM2.

paddlenlp/peft/lora/lora_model.py, LoRAModel._get_tensor_parallel_convert_actions: the columns of lora_B are cut evenly,
though those of the weight beside it (queries, keys and values in one, or gate and up) are cut in several places. What
one rank adds belongs to other columns. Corrected: lora_B is cut, and put together, as the weight is, and so are the
magnitudes of launch/adapters/dora.py.
"""

import functools

from paddlenlp.peft import LoRAModel
from paddlenlp.transformers.conversion_utils import ConversionMixin


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    if not hasattr(LoRAModel._get_tensor_parallel_convert_actions, "__wrapped__"):
        LoRAModel._get_tensor_parallel_convert_actions = _as_weights(LoRAModel._get_tensor_parallel_convert_actions)


def _as_weights(stock):
    @functools.wraps(stock)
    def actions_of(self, loaded_keys, is_split=True, ignore_error=False, config=None):
        actions = stock(self, loaded_keys, is_split, ignore_error, config)
        of_weights = self.model._get_tensor_parallel_mappings(config or self.model.config, is_split=is_split)
        names = ConversionMixin._resolve_prefix_keys(of_weights.keys(), self.model.state_dict().keys(), ignore_error)
        for short, name in names.items():
            for half in ("lora_B", "lora_magnitude"):
                beside = name.removesuffix("weight") + half
                if beside in actions:
                    actions[beside] = of_weights[short]
        return actions

    return actions_of

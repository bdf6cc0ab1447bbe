"""paddlenlp has no Qwen3 and no ERNIE 4.5, dense or with experts.

Its last release, 3.0.0b4, is older than these models: paddlenlp/transformers has no module of them, and AutoConfig and
AutoModel refuse their config.json. Here: the classes of launch/models get the names that modules of paddlenlp would
give them, and enter the tables of the Auto classes.
"""

import sys
from types import ModuleType

import paddlenlp.transformers as transformers
from paddlenlp.transformers.auto import modeling
from paddlenlp.transformers.auto.configuration import CONFIG_MAPPING, AutoConfig

from launch.models import ernie4_5_model, ernie4_5_moe_model, qwen3_model, qwen3_moe_model

MODELS: dict[str, tuple[str, ModuleType]] = {  # model_type: (how the names of its classes begin, where they are)
    "qwen3": ("Qwen3", qwen3_model),
    "qwen3_moe": ("Qwen3Moe", qwen3_moe_model),
    "ernie4_5": ("Ernie4_5", ernie4_5_model),
    "ernie4_5_moe": ("Ernie4_5_Moe", ernie4_5_moe_model),
}
ENDS = ("Config", "Model", "ForCausalLM", "ForCausalLMPipe")


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for model_type, (begin, module) in MODELS.items():
        for name in (f"{begin}{end}" for end in ENDS):
            if hasattr(module, name):  # models with experts have no pipeline class
                setattr(transformers, name, getattr(module, name))
        config_class = getattr(module, f"{begin}Config")
        sys.modules[f"paddlenlp.transformers.{model_type}.modeling"] = module
        CONFIG_MAPPING.register(model_type, config_class, exist_ok=True)
        AutoConfig.MAPPING_NAMES[model_type] = [config_class]
        modeling.MAPPING_NAMES[begin] = model_type
    for task, owner in modeling.MAPPING_TASKS.items():
        getattr(modeling, owner)._name_mapping |= modeling.get_name_mapping(task)

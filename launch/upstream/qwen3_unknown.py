"""paddlenlp has no Qwen3.

Its last release, 3.0.0b4, is older than the model: paddlenlp/transformers has no module of it, and AutoConfig and
AutoModel refuse its config.json. Here: the classes of launch/models/qwen3_model.py get the names that a module
paddlenlp.transformers.qwen3 would give them, and enter the tables of the Auto classes.
"""

import sys

import paddlenlp.transformers as transformers
from paddlenlp.transformers.auto import modeling
from paddlenlp.transformers.auto.configuration import CONFIG_MAPPING, AutoConfig

from launch.models import qwen3_model

NAME = "qwen3"
CLASSES = ("Qwen3Config", "Qwen3Model", "Qwen3ForCausalLM", "Qwen3ForCausalLMPipe")


def correct() -> None:
    """Correct upstream; a second call changes nothing."""
    for name in CLASSES:
        setattr(transformers, name, getattr(qwen3_model, name))
    sys.modules[f"paddlenlp.transformers.{NAME}.modeling"] = qwen3_model
    CONFIG_MAPPING.register(NAME, qwen3_model.Qwen3Config)
    AutoConfig.MAPPING_NAMES[NAME] = [qwen3_model.Qwen3Config]
    modeling.MAPPING_NAMES["Qwen3"] = NAME
    for task, owner in modeling.MAPPING_TASKS.items():
        getattr(modeling, owner)._name_mapping |= modeling.get_name_mapping(task)

"""All model families, and which one a configuration belongs to.

family = family_of_config(load_config("facebook/llama-7b"))
family.lacking.get("sequence_parallel")  # why not, and what works instead; None where it works
"""

import json
import re
from functools import lru_cache
from itertools import islice

from launch.errors import UserError
from launch.families.baichuan import BAICHUAN
from launch.families.bloom import BLOOM
from launch.families.chatglm import CHATGLM
from launch.families.chatglm_v2 import CHATGLM_V2
from launch.families.ernie4_5 import ERNIE4_5
from launch.families.ernie4_5_moe import ERNIE4_5_MOE
from launch.families.family import Family
from launch.families.glm import GLM
from launch.families.llama import LLAMA
from launch.families.mistral import MISTRAL
from launch.families.mixtral import MIXTRAL
from launch.families.opt import OPT
from launch.families.parameters import HEAD, SCORE, Parameter, gives_scores
from launch.families.qwen2 import QWEN2
from launch.families.qwen2_moe import QWEN2_MOE
from launch.families.qwen3 import QWEN3
from launch.families.qwen3_moe import QWEN3_MOE

MOST_PARAMETERS = 2**19  # tensors; the largest published models have a tenth of that

FAMILIES = {
    family.name: family
    for family in (
        *(LLAMA, BAICHUAN, CHATGLM, CHATGLM_V2, BLOOM, GLM, OPT, QWEN2, QWEN3, MISTRAL, MIXTRAL, QWEN2_MOE),
        *(ERNIE4_5, QWEN3_MOE, ERNIE4_5_MOE),
    )
}


def family_of(model_type: str) -> Family:
    """Return the family of a config.json's `model_type`.

    Raises:
        UserError: For a family that is not in the registry.
    """
    if model_type not in FAMILIES:
        raise UserError(
            f"model_type: found {model_type!r}, allowed: {', '.join(sorted(FAMILIES))}. "
            "Add a module to launch/families for another family."
        )
    return FAMILIES[model_type]


def their_name(name: str, model_type: str) -> str:
    """Return the name of our parameter in a Hugging Face file; `name` may be its layer's."""
    for pattern, replacement in family_of(model_type).published.renamed:
        name = re.sub(pattern, replacement, name)
    return name


@lru_cache(maxsize=16)
def _parameters(name: str, config: str) -> tuple[Parameter, ...]:
    """Return the parameters of a model.

    Cached: a fit asks for one model hundreds of times, and experts have thousands.
    """
    values = json.loads(config)
    found = tuple(islice(FAMILIES[name].parameters(values), MOST_PARAMETERS + 1))
    if len(found) > MOST_PARAMETERS:
        raise UserError(f"config.json: found more than {MOST_PARAMETERS:,} parameters. Copy the published one again.")
    if not gives_scores(values):
        return found
    score = Parameter(SCORE, (values["hidden_size"], 1), HEAD)
    return (*(parameter for parameter in found if parameter.kind != HEAD), score)


def family_of_config(config: dict) -> Family:
    """Return the family of a configuration: a LLaMA with ALiBi is a Baichuan-13B.

    Raises:
        UserError: As family_of.
    """
    chosen = (family for family in FAMILIES.values() if family.chosen_by and config.get(family.chosen_by))
    return next(chosen, None) or family_of(config["model_type"])


def as_reward_model(config: dict) -> dict:
    """Return the configuration of the reward model that begins with a model's weights. Its one output is a "label"."""
    label = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return config | {"architectures": [family_of_config(config).reward_class]} | label


def parameters(config: dict) -> list[Parameter]:
    """Return every parameter of a model by name and shape, from the word embedding to the head: no Paddle, no weights.

        for parameter in parameters(load_config("llama-7b")):
            print(parameter.name, parameter.shape)

    Raises:
        UserError: For an unknown family, and for a configuration without one of the sizes.
    """
    family = family_of(config.get("model_type", ""))
    try:
        return list(_parameters(family.name, json.dumps(config, sort_keys=True)))
    except KeyError as error:
        key, kind = error.args[0], family.model_type
        raise UserError(
            f"config.json: {key}: not found. A model of type {kind!r} needs it: copy config.json from "
            "the published model again."
        ) from None

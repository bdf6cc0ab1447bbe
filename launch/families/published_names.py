"""Names under which models are published, and the configuration here that has their sizes: enough to plan and rehearse.

Not every published name has one: these are models of the sizes in configs/, in any of the forms in which they are
published. A form of another shape has a name of its own (Mistral-7B-Instruct-v0.2, of another vocabulary), and none
here.
"""

import re
from pathlib import Path

from launch.families.named_configs import NAME, OUR_FOLDERS, config_names

# What hubs add to the name of a model for the same sizes: what it was trained for, whose layout its files have.
FORMS = re.compile(r"^meta-|-(base|instruct|chat|hf)(?=-|$)")
# Names of other forms.
OTHERS = {
    "bloomz-7b1": "bloom-7b1",
    "bloomz-7b1-mt": "bloom-7b1",
    "tinyllama-1.1b-v1.0": "tinyllama-1.1b",
}


def named_size(model_name_or_path: str) -> str:
    """The configuration here with the sizes of a published model, Qwen/Qwen3-8B-Base in any case; any other name, and
    a path into a folder that is here or ours, as it is."""
    named = NAME.fullmatch(model_name_or_path)
    if not named or named["name"] in config_names() or Path(model_name_or_path).is_dir():
        return model_name_or_path
    if named["owner"] and (named["owner"] in OUR_FOLDERS or Path(named["owner"]).exists()):
        return model_name_or_path
    name = FORMS.sub("", named["name"].lower())
    size = OTHERS.get(name, name)
    return size if size in config_names() else model_name_or_path

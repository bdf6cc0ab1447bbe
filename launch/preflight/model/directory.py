"""Is there a configuration for the model that is asked for, and are its weights where they are looked for?"""

from launch.config.flag_values import Flags
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.families.registry import family_of_config
from launch.preflight.report import Finding


def check_model(flags: Flags) -> list[Finding]:
    """The configuration that --model_name_or_path means is found and of a family that we have."""
    if not flags.get("model_name_or_path"):
        return [Finding(False, "model", "no --model_name_or_path", "--model_name_or_path NAME, or MODEL=DIRECTORY")]
    name = flags["model_name_or_path"][0]
    try:
        family = family_of_config(load_config(name))
    except UserError as error:
        return [Finding(False, "model", str(error), "MODEL=DIRECTORY or --model_name_or_path names another")]
    return [Finding(True, "model", f"{name} ({family.title})")]

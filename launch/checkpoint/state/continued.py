"""What a run goes on with, by its flags alone: the checkpoint, and the configuration of its model. No Paddle."""

from pathlib import Path

from launch.checkpoint.state.manifest import checkpoints, read_manifest
from launch.checkpoint.state.verify import first_fault
from launch.families.named_configs import load_config
from launch.families.vocabulary import fresh_vocabulary

AUTO, NONE = "auto", "none"  # of --resume_from_checkpoint, beside a path


def newest_whole(output: str | Path) -> Path | None:
    """The newest checkpoint of an output directory whose files have the sizes of its manifest."""
    return next((one for one in checkpoints(output) if first_fault(one, hashes=False) is None), None)


def continued(values) -> Path | None:
    """The checkpoint whose weights a run takes; None where it starts without. values: the flags, as attributes.

    A named one that is not whole counts as none: the check of the continuation tells it.
    """
    wanted = values.resume_from_checkpoint or NONE
    if not values.do_train or wanted == NONE or (wanted == AUTO and values.overwrite_output_dir):
        return None
    if wanted == AUTO:
        return newest_whole(values.output_dir) if values.output_dir else None
    return Path(wanted) if first_fault(Path(wanted), hashes=False) is None else None


def run_config(values) -> dict:
    """The configuration of a run's model, as a dictionary, with the vocabulary of its tokenizer or of its checkpoint.

    values: the flags by their names, as attributes. Raises UserError where there is no such model.
    """
    config = load_config(values.model_name_or_path or "")
    size = fresh_vocabulary(config, values, vocabulary_so_far(continued(values), config))
    return config if size is None else config | {"vocab_size": size}


def vocabulary_so_far(checkpoint: Path | None, config: dict) -> int | None:
    """vocab_size of the model in a checkpoint. One that does not state its model was made when fresh models had the
    vocabulary of their configuration."""
    if checkpoint is None:
        return None
    return read_manifest(checkpoint).model.get("config", {}).get("vocab_size", config["vocab_size"])

"""An adapter may come from anywhere: what its files ask to be run is not run, what does not fit is refused."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.training.finetune_material import argv
from tests.training.run_ranks import make_corpus

INDEX = "peft_model.safetensors.index.json"
WEIGHTS = "peft_model-00001-of-00001.safetensors"
PDPARAMS = "lora_model_state.pdparams"


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture(scope="module")
def found(ranks, tmp_path_factory) -> dict[str, dict]:
    """Outcomes of adapters in predict and serve, by the adapter's name; "ran": whether anything was run."""
    root = tmp_path_factory.mktemp("untrusted")
    ranks(1, "tests.serving.material:make_served", str(root))
    ran = root / "ran"
    tensors = load_file(root / "lora" / WEIGHTS)

    def variant(name: str, kind: str = "lora", without: tuple[str, ...] = ()) -> Path:
        shutil.copytree(root / kind, root / name, ignore=shutil.ignore_patterns(*without))
        return root / name

    (variant("pickled", without=("*.safetensors*",)) / PDPARAMS).write_bytes(pickle.dumps({"x": Runs(ran)}))
    named = variant("named_by_the_index", without=(WEIGHTS,))
    (named / PDPARAMS).write_bytes(pickle.dumps({name: Runs(ran) for name in tensors}))
    (named / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, PDPARAMS)}))
    prefix = variant("pickled_prefix", "prefix", without=("*.safetensors*",))
    (prefix / "prefix_model_state.pdparams").write_bytes(pickle.dumps({"0.weight": Runs(ran)}))
    (prefix / INDEX).write_text(json.dumps({"weight_map": {"0.weight": "prefix_model_state.pdparams"}}))
    with open(variant("arrays", without=("*.safetensors*",)) / PDPARAMS, "wb") as file:
        pickle.dump(tensors, file, 4)
    more = variant("more_tensors")
    layer = "llama.layers.7.mlp.up_proj"
    added = {f"{layer}.lora_A": np.zeros((64, 4), np.float32), f"{layer}.lora_B": np.zeros((4, 4), np.float32)}
    save_file(tensors | added, more / WEIGHTS)
    places = dict.fromkeys(load_file(more / WEIGHTS), WEIGHTS)
    (more / INDEX).write_text(json.dumps({"weight_map": places}))
    for name, change in {"pattern": {"target_modules": ["("]}, "rank": {"r": "4"}, "pissa": {"pissa": True}}.items():
        config = variant(name) / "lora_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | change))
    names = (
        "lora", "pickled", "named_by_the_index", "pickled_prefix", "arrays", "more_tensors", "pattern", "rank", "pissa"
    )  # fmt: skip
    [outcomes] = ranks(
        1, "tests.adapters.untrusted_ranks:load_all", str(root / "model"), [str(root / name) for name in names]
    )
    return outcomes | {"ran": ran.exists(), "root": root}


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        ("pickled", f"{PDPARAMS}: "),
        ("named_by_the_index", f"{PDPARAMS}: not a safetensors file"),
        ("pickled_prefix", "prefix_model_state.pdparams: not a safetensors file"),
        ("more_tensors", ": this adapter does not fit the model: not in the model: llama.layers.7.mlp.up_proj.lora_A"),
        ("pattern", "lora_config.json: target_modules: found ['('], allowed: a list of regular expressions"),
        ("rank", "lora_config.json: r: found '4', allowed: a whole number from 1."),
        ("pissa", "lora_config.json: pissa: found True, allowed: false: plain LoRA."),
    ],
)
def test_predict_and_serve_refuse_it_and_run_nothing(found, adapter, reason):
    assert not found["ran"]
    for refusal in found[adapter].values():
        assert str(refusal).startswith(str(found["root"] / adapter)) and reason in refusal


def test_arrays_in_a_pdparams_file_are_the_same_adapter(found):
    assert len(found["lora"]["predict"]) == 64
    assert found["arrays"]["predict"] == found["lora"]["predict"] == found["lora"]["serve"] == found["arrays"]["serve"]


@pytest.mark.long
def test_no_command_can_load_a_pickle(ranks, tmp_path):
    """Training, resuming, evaluating, merging, export, import, predicting, where a pickle cannot be read."""
    ranks(1, "tests.serving.material:make_served", str(tmp_path))
    make_corpus(str(tmp_path / "corpus" / "train"), 384, 383)
    (tmp_path / "prompt.json").write_text('{"src": "a", "tgt": "b"}\n')
    for directory, names, state in (("lora", "peft_model*", PDPARAMS), ("model", "model*", "model_state.pdparams")):
        old = tmp_path / f"{directory}-pdparams"
        shutil.copytree(tmp_path / directory, old, ignore=shutil.ignore_patterns(names))
        [weights] = (tmp_path / directory).glob("*.safetensors")
        with open(old / state, "wb") as file:
            pickle.dump(load_file(weights), file, 4)

    def path(name: str) -> str:
        return str(tmp_path / name)

    best = {"metric_for_best_model": "loss", "greater_is_better": 0, "load_best_model_at_end": 1, "do_eval": 1}
    each = {"save_steps": 1, "evaluation_strategy": "steps", "eval_steps": 1, "max_steps": 2}
    full = argv(tmp_path, tmp_path / "full", **each, **best)
    tuned = argv(tmp_path, tmp_path / "tuned", lora=1, **each)
    corpus = [
        *("--model_name_or_path", path("model"), "--continue_training", "1", "--input_dir", path("corpus")),
        *("--output_dir", path("pretrained"), "--max_seq_length", "64", "--max_steps", "2", "--do_train", "1"),
        *("--save_steps", "1", "--device", "cpu", "--cpu_fast", "off", "--report_to", "none"),
    ]
    base = ["--model_name_or_path", path("model")]
    predict = ["--data_file", path("prompt.json"), "--output_file", path("answers.json"), "--max_new_tokens", "2"]
    predict += ["--device", "cpu", "--model_name_or_path"]
    commands = [
        ("finetune_generation", full),
        ("finetune_generation", tuned),
        ("run_pretrain", corpus),
        ("commands.merge", ["--adapter_path", path("lora"), "--output_dir", path("both"), *base]),
        ("commands.export", [path("model"), path("exported")]),
        ("commands.export", [path("lora"), path("peft"), "--base", path("model")]),
        ("commands.import_weights", [path("exported"), path("imported")]),
        ("commands.import_weights", [path("peft"), path("imported-lora"), "--base", path("imported")]),
        ("commands.predict", [*predict, path("both")]),
        ("commands.predict", [*predict, path("model-pdparams"), "--adapter_path", path("lora-pdparams")]),
        ("commands.predict", [*predict, path("imported"), "--adapter_path", path("imported-lora")]),
        ("commands.predict", [*predict, path("model"), "--adapter_path", path("prefix")]),
    ]
    _all_end_well(ranks, commands)
    for output in ("full", "tuned"):
        shutil.rmtree(tmp_path / output / "checkpoint-2")
        (tmp_path / output / "run_summary.json").unlink()  # of a run that has ended
    _all_end_well(ranks, [(name, [*words, "--resume_from_checkpoint", "auto"]) for name, words in commands[:2]])


def _all_end_well(ranks, commands: list[tuple[str, list[str]]]) -> None:
    [results] = ranks(1, "tests.adapters.untrusted_ranks:run_without_pickles", commands)
    for (name, _), result in zip(commands, results, strict=True):
        assert result["exit_code"] == 0, (name, result["stdout"] + result["stderr"])

"""What the ranks of the tests of models do."""


def download(directory: str, fails: bool) -> dict:
    """weights_directory of a name that PaddleNLP "downloads" to a directory, once other ranks may look there."""
    from pathlib import Path

    import paddle
    from paddlenlp.transformers import LlamaForCausalLM

    from launch.errors import UserError
    from launch.rehearsal import collectives
    from launch.training.model import weights_directory

    collectives.install()
    paddle.distributed.init_parallel_env()
    rank = paddle.distributed.get_rank()
    file = Path(directory, "model_state.pdparams")
    there_before = []

    def resolve(name, config):
        there_before.append(file.exists())
        if fails:
            raise OSError("Connection refused")
        file.touch()
        return str(file), None, None, False

    LlamaForCausalLM._resolve_model_file_path = resolve
    try:
        found = str(weights_directory("facebook/llama-7b", LlamaForCausalLM, None))
    except UserError as error:
        found = str(error)
    return {"rank": rank, "found": found, "there_before": there_before}


def tokenizers(directory: str) -> list[int | None]:
    """Vocabulary sizes of the tokenizers of a fresh model: of a directory with one, of one without, of a name."""
    from types import SimpleNamespace

    from launch.training.model import load_tokenizer

    places = (f"{directory}/model", directory, "llama-rehearsal")
    found = [
        load_tokenizer(SimpleNamespace(tokenizer_name_or_path=None, model_name_or_path=place, continue_training=False))
        for place in places
    ]
    return [tokenizer and tokenizer.vocab_size for tokenizer in found]


def fresh_vocabulary(tokenizer: str, checkpoint: str | None = None) -> dict:
    """The vocabulary of llama-rehearsal (1,024 ids) from random weights with a tokenizer, and what is told of it."""
    from pathlib import Path
    from types import SimpleNamespace

    from launch.checkpoint.continuation import Continuation
    from launch.checkpoint.manifest import read_manifest
    from launch.training.model import COPIED_FLAGS, build_config, vocabulary_lines

    off = SimpleNamespace(enabled=False)
    model_args = SimpleNamespace(
        model_name_or_path="llama-rehearsal",
        tokenizer_name_or_path=tokenizer,
        continue_training=False,
        recompute_granularity="full",
    )
    training_args = SimpleNamespace(**dict.fromkeys(COPIED_FLAGS, 1))
    decisions = SimpleNamespace(flash_attention=off, fused_rms_norm=off, uses=lambda flag: False)
    manifest = read_manifest(Path(checkpoint)) if checkpoint else None
    config = build_config(model_args, 32, training_args, decisions, Continuation(manifest=manifest))
    return {"vocab_size": config.vocab_size, "lines": vocabulary_lines(config, model_args)}

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

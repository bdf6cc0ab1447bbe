"""The layout that the pinned TrainingArguments makes of flags, in a world of any size."""


def upstream_layout(argv: list[str], processes: int) -> list:
    """[data, sharding, tensor, pipeline degree, sharding words, data ranks] of upstream's own arithmetic.

    The world is pretended and the process groups are left out: only numbers are asked for.
    """
    import os

    os.environ["PADDLE_RANK_IN_NODE"] = "0"
    import paddle
    from paddle.distributed import fleet
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    paddle.distributed.get_world_size = lambda group=None: processes
    paddle.distributed.init_parallel_env = fleet.init = lambda *args, **kwargs: None
    words = ["--output_dir", "unused", "--device", "cpu", *argv]
    [args] = PdArgumentParser([TrainingArguments]).parse_args_into_dataclasses(words, look_for_args_file=False)
    if not args.use_hybrid_parallel and processes > 1:
        assert args.sharding_parallel_degree == -1
        data_parallel = processes
    else:
        data_parallel = args.data_parallel_degree
    degrees = [args.sharding_parallel_degree, args.tensor_parallel_degree, args.pipeline_parallel_degree]
    sharding = " ".join(option.value for option in args.sharding)
    return [data_parallel, *(max(one, 1) for one in degrees), sharding, args.dataset_world_size]


def upstream_layouts(cases: list) -> list:
    """upstream_layout of each [argv, processes]."""
    return [upstream_layout(argv, processes) for argv, processes in cases]

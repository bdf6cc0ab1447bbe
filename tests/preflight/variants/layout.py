"""Tensor, pipeline and sequence parallel on so many processes."""

from tests.preflight.variants.variant import FOUR_D, PRETRAIN, TINY, wrong

VARIANTS = [
    wrong(
        PRETRAIN,
        "--tensor_parallel_degree 3",
        ("--tensor_parallel_degree", "do not divide 8 processes"),
        ("--tensor_parallel_degree", "3 for 32 attention heads"),
        ("--tensor_parallel_degree", "3 for an intermediate size of 11008"),
        told=[("--tensor_parallel_degree", "3 does not divide the vocabulary of 32000")],
    ),
    wrong(
        PRETRAIN,
        "--model_name_or_path some/bloom-7b1 --tensor_parallel_degree 3 --sharding stage1",
        ("--tensor_parallel_degree", "do not divide 8 processes"),
        ("--tensor_parallel_degree", "3 for 32 attention heads"),
        ("--tensor_parallel_degree", "3 does not divide the vocabulary of 250880"),
    ),
    wrong(TINY, "--tensor_parallel_degree 4", ("--tensor_parallel_degree", "do not divide 2 processes")),
    wrong(PRETRAIN, "--sequence_parallel 1", ("--sequence_parallel", "1 without tensor parallel")),
    wrong(FOUR_D, "--max_seq_length 2047", ("--max_seq_length", "2047 with --sequence_parallel over 2 ranks")),
    wrong(
        FOUR_D,
        "--pipeline_parallel_config use_dualpipev",
        ("--pipeline_parallel_config", "interleaved pipeline"),
    ),
    wrong(FOUR_D, "--optim adamw_mini", ("--optim", "adamw_mini with --tensor_parallel_degree 2")),
]

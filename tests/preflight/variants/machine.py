"""Cards, and what they cannot do."""

from launch.devices.cards import Process
from tests.devices.fake_nvml import GIB, card
from tests.preflight.variants.variant import A100S, PRETRAIN, TINY, wrong

VARIANTS = [
    wrong(PRETRAIN, "", ("cards", "here: none"), here=[]),
    wrong(PRETRAIN, "", ("cards", "8 of 80 GB needed, here: 2 x"), here=A100S[:2]),
    wrong(
        PRETRAIN,
        "",
        ("cards", "8 of 80 GB needed, chosen: 8 x NVIDIA A100-SXM4-40GB"),
        here=[card("A100-40G", index) for index in range(8)],
    ),
    wrong(
        PRETRAIN,
        "",
        ("card 3", "20.0 of 80 GiB are in use by process 7"),
        here=[
            *A100S[:3],
            card("A100", 3, free_bytes=60 * GIB, processes=(Process(7, None),)),
            *A100S[4:8],
        ],
    ),
    wrong(
        PRETRAIN,
        "--bf16 1 --fp16 0",
        ("--bf16", "compute capability 7.0 has no bfloat16"),
        wishes={"GPU_MEMORY_GB": "32"},
        here=[card("V100", index) for index in range(8)],
    ),
    wrong(
        PRETRAIN,
        "--use_flash_attention required",
        ("--use_flash_attention", "found required, not possible here"),
        wishes={"GPU_MEMORY_GB": "32"},
        here=[card("V100", index) for index in range(8)],
    ),
    wrong(TINY, "--use_flash_attention required", ("--use_flash_attention", "found required, not possible here")),
]

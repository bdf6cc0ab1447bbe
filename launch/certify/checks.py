"""The table of checks: number, name, what is expected, how long it may take, and what a ✗ means. No Paddle here."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from launch.certify.full_size import MEMORY_TOLERANCE, TIME_TOLERANCE, recipes_for_cards
from launch.errors import UserError


@dataclass(frozen=True)
class Check:
    """One check.

    name:     for --only, for the JSON file and for the folder of its logs
    title:    for people
    expected: in a sentence
    at_fault: what a ✗ means, and for which recipes
    where:    "module:function", imported in the process of the check; the function takes a Bench, and `of` if it is set
    seconds:  about how long it takes on one card; pretended: in a pretended run; limit: it is ended after so many
    several:  how much longer it takes with several cards; cards: that it needs, without which it ends at once
    """

    name: str
    title: str
    expected: str
    at_fault: str
    where: str
    seconds: float
    pretended: float
    limit: float
    of: str = ""
    several: float = 0.0
    cards: int = 1

    def function(self) -> Callable:
        module, _, name = self.where.partition(":")
        function = getattr(importlib.import_module(module), name)
        return partial(function, target=self.of) if self.of else function

    def seconds_for(self, pretend: bool, cards: int) -> float:
        if pretend or cards < self.cards:
            return self.pretended if pretend else 1.0
        return self.seconds + (self.several if cards > 1 else 0.0)

    def limit_for(self, pretend: bool) -> float:
        """Pretended runs share few cores with whatever else the machine does."""
        return max(120.0, 12 * self.pretended) if pretend else self.limit


ON_TINY_MODELS = (
    Check(
        "environment",
        "environment and driver",
        "the pinned packages, a driver that runs this Paddle, free cards without memory errors, right matrix products",
        "nothing below can be trusted before this is mended: the fix stands in each row",
        "launch.certify.card_checks:environment",
        seconds=20,
        pretended=2,
        limit=120,
    ),
    Check(
        "rms-norm",
        "fused RMSNorm",
        "the CUDA kernels pass their own check; each operator gives in each dtype what float64 gives",
        "recipes with --use_fused_rms_norm auto find it at their start and take the next operator, slower and with "
        "more memory; --use_fused_rms_norm required is refused",
        "launch.certify.card_checks:rms_norm",
        seconds=90,
        pretended=2,
        limit=400,
    ),
    Check(
        "flash-attention",
        "flash attention",
        "as exact attention for each mask, head size and dtype that the table of docs/flash-attention.md allows",
        "recipes with --use_flash_attention auto find it at their start and use exact attention, slower and with more "
        "memory; --use_flash_attention required is refused",
        "launch.certify.card_checks:flash_attention",
        seconds=40,
        pretended=3,
        limit=300,
    ),
    Check(
        "prefix-attention",
        "flash attention with a prefix",
        "as exact attention where keys are more than queries, of even and odd number, padded and not",
        "prefix-llama7b finds it at its start and uses exact attention, slower and with more memory",
        "launch.certify.card_checks:prefix_attention",
        seconds=50,
        pretended=7,
        limit=300,
    ),
    Check(
        "fused-kernels",
        "fused rotary embedding and SwiGLU",
        "as the plain formulas, forward and backward, in each dtype",
        "SwiGLU: every LLaMA and Qwen2 trains wrong in the row's dtype; rotary embedding: recipes find it at their "
        "start and take separate operators, slower and with more memory; --use_fused_rope required is refused",
        "launch.certify.card_checks:fused_kernels",
        seconds=15,
        pretended=2,
        limit=200,
    ),
    Check(
        "gradient-norms",
        "norms of small gradients in half precision",
        "the norm in float32, and gradients clipped by it",
        "--max_grad_norm does not clip as it should in half precision, in all recipes: do not train in the row's dtype "
        "before this is mended",
        "launch.certify.card_checks:gradient_norms",
        seconds=20,
        pretended=2,
        limit=200,
    ),
    Check(
        "quantized",
        "bases in 8 and 4 bits",
        "products with what the codes stand for, of 1, 4 and 512 rows",
        "qlora-llama7b and qlora-baichuan13b (nf4), lora-chatglm6b-int8 (llm.int8), and every "
        "--weight_quantize_algo of the row, compute something else than their weights",
        "launch.certify.card_checks:quantized",
        seconds=60,
        pretended=4,
        limit=400,
    ),
    Check(
        "card-against-cpu",
        "a tiny model on the card and on the CPU",
        "the same losses: float32 within 1e-4, half precision within 2e-2",
        "no recipe can be trusted on this card in the dtype of the row",
        "launch.certify.tiny_model:card_against_cpu",
        seconds=97,
        pretended=12,
        limit=400,
    ),
    Check(
        "layouts",
        "layouts over several cards",
        "each layout gives the losses of one card, float32 within 1e-4",
        "recipes with the layout of the row train something else than one card would",
        "launch.certify.tiny_model:layouts",
        seconds=240,
        pretended=30,
        limit=1500,
        cards=2,
    ),
    Check(
        "offload",
        "offload to host memory",
        "the losses of a run without offload, to the bit",
        "pretrain-baichuan13b-lora, finetune-chatglm2-6b-2gpu and all runs with the words of the row",
        "launch.certify.tiny_model:offload",
        seconds=60,
        pretended=25,
        limit=900,
        several=100,
    ),
    Check(
        "resume",
        "checkpoint, kill, resume",
        "losses and weights of a run that was not killed, to the bit, with --deterministic 1",
        "a run of any recipe that is killed may not go on as it would have; checkpoints themselves are whole",
        "launch.certify.tiny_model:resume",
        seconds=75,
        pretended=15,
        limit=900,
        several=75,
    ),
    Check(
        "serving",
        "the server",
        "the answers that the CPU gives, to requests alone and together, of one card and of two, and an orderly end",
        "make serve and make predict answer something else on this card than the model says",
        "launch.certify.tiny_model:serving",
        seconds=60,
        pretended=25,
        limit=400,
        several=30,
    ),
)


def all_checks() -> tuple[Check, ...]:
    """Those on tiny models, then the largest model that fits, then each recipe for cards at full size."""
    largest = Check(
        "largest",
        "the largest model that fits on one card",
        f"memory within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}",
        "plans for this card are wrong near its limit: what `make X` lets start may run out of memory, or be slower",
        "launch.certify.full_size:largest",
        seconds=120,
        pretended=5,
        limit=600,
    )
    recipes = [
        Check(
            f"recipe-{target}",
            f"{target} at full size",
            f"memory of each rank within {MEMORY_TOLERANCE:.0%} of the plan, a step within {TIME_TOLERANCE:.0%}, the "
            "first loss of random weights",
            "this recipe: the row says what differs; of a run that failed, the end of its log is shown",
            "launch.certify.full_size:measure_recipe",
            seconds=96,
            pretended=1,
            limit=900,
            of=target,
            cards=cards,
        )
        for target, cards in recipes_for_cards().items()
    ]
    return (*ON_TINY_MODELS, largest, *recipes)


def choose(only: str, checks: Sequence[Check]) -> list[Check]:
    """The checks that --only names by name or number; all without it. Raises UserError for an unknown one."""
    if not only:
        return list(checks)
    known = {check.name: check for check in checks} | {str(n): check for n, check in enumerate(checks, start=1)}
    words = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        names = ", ".join(f"{number} {check.name}" for number, check in enumerate(checks, start=1))
        raise UserError(f"--only: found {unknown[0] if unknown else only!r}, allowed: {names}.")
    return [check for check in checks if check in [known[word] for word in words]]

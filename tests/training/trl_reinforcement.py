"""The losses and advantages of reinforcement by TRL's own trainers, for tests/training/test_against_trl.py.

    python -m tests.training.trl_reinforcement DIRECTORY < CASE

Reads from stdin, as JSON, "lengths", "totals" and "longest" of a group of answers, and by algorithm ln(ratio) of their
tokens, "ratios", and the bounds of "clip"; and "logits", of a student and its teacher. Prints {algorithm: [loss,
advantage of each answer, ...], "teacher": [reverse divergence, its gradient by the student's logits, ...]}. What is
generated, and the two times that its probabilities are computed, are replaced; all that TRL makes of them is its own.
"""

import json
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GKDTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

WORD, END = 0, 1
WORDS = models.WordLevel({"a": WORD, "b": END, "c": 2}, unk_token="a")
USUAL = {"report_to": "none", "use_cpu": True, "bf16": False, "beta": 0.0, "num_iterations": 2}
OLD = -2.0  # ln p of each token when it was sampled
FLAGS = {
    "grpo": {"loss_type": "grpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "rloo": {},
}


def loss_of(name: str, ratios: list, lengths: list, totals: list, longest: int, clip: list, output: str) -> list:
    """Return loss and advantages of a group of answers, all of which have ended."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WORDS), pad_token="c", eos_token="b", bos_token="c", unk_token="a"
    )
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=3, **shape))
    trainer_class, config_class = (RLOOTrainer, RLOOConfig) if name == "rloo" else (GRPOTrainer, GRPOConfig)
    config = config_class(
        output_dir=output,
        per_device_train_batch_size=len(totals),
        num_generations=len(totals),
        max_completion_length=longest,
        epsilon=clip[0],
        epsilon_high=clip[1],
        **USUAL,
        **FLAGS[name],
    )
    trainer = trainer_class(
        model=model,
        reward_funcs=lambda completions, **columns: totals,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "a"}]),
        processing_class=tokenizer,
    )
    answers = torch.tensor([[WORD] * (length - 1) + [END] * (max(lengths) - length + 1) for length in lengths])
    old = torch.full(answers.shape, OLD)
    new = old + torch.tensor(ratios)
    computed = iter([old, new])
    model.generate = lambda input_ids, **_: torch.cat([input_ids, answers], dim=1)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (next(computed), torch.zeros(answers.shape))
    model.train()
    batch = trainer._generate_and_score_completions([{"prompt": "a"}] * len(totals))
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(model, batch)
    assert next(computed, None) is None, "both are used"
    return [loss.item(), *batch["advantages"].tolist()]


def divergence_of(student: list, teacher: list) -> list:
    """Return KL(student | teacher) of a place, as TRL's on-policy distillation has it, and its gradient."""
    logits, others = (torch.tensor([[one]], dtype=torch.float64) for one in (student, teacher))
    logits.requires_grad_()
    loss = GKDTrainer.generalized_jsd_loss(logits, others, beta=1)
    loss.backward()
    return [loss.item(), *logits.grad.flatten().tolist()]


if __name__ == "__main__":
    case = json.load(sys.stdin)
    given = (case["lengths"], case["totals"], case["longest"])
    found = {name: loss_of(name, one, *given, case["clip"][name], sys.argv[1]) for name, one in case["ratios"].items()}
    print(json.dumps(found | {"teacher": divergence_of(*case["logits"])}))

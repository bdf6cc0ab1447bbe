"""TRL's side of benchmarks/grpo.py: runs of its GRPOTrainer, with generate() of transformers, one after the other.

    python benchmarks/grpo_worker.py JOBS

JOBS: JSON, with "steps", "gaps", "top_p" and what all have ("job" in grpo.py). Prints a list: of each run the
"versions", and for each step "sampling" and "learning" seconds, tokens of "prompts", "answered" and "learned"; with
"gaps" |ln(ratio)| of the first update, as TRL computes it ("own") and to what was sampled by ("sampled").
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the repository, not benchmarks/

from launch.cpu.settings import keep_freed_memory

keep_freed_memory()  # as cpu_fast does for ours

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

USUAL = {"report_to": "none", "use_cpu": True, "bf16": False, "beta": 0.0, "loss_type": "grpo", "save_strategy": "no"}
FAST = {"gradient_checkpointing": False, "optim": "adamw_torch_fused", "disable_tqdm": True, "logging_steps": 1000}


class TimedTrainer(GRPOTrainer):
    """TRL's trainer, which notes tokens, seconds and, with `gaps`, what it sampled by."""

    gaps = False

    def _generate_and_score_completions(self, inputs):
        generate = self.model.generate
        if self.gaps:
            self.model.generate = lambda **given: self._noted(generate, **given)
        began = time.perf_counter()
        found = super()._generate_and_score_completions(inputs)
        seconds, self.model.generate = time.perf_counter() - began, generate
        prompts, answered = int(found["prompt_mask"].sum()), int(found["completion_mask"].sum())
        learned = prompts + answered - len(found["prompt_mask"])
        self.steps.append({"sampling": seconds, "prompts": prompts, "answered": answered, "learned": learned})
        return found | ({"sampled": self.sampled} if self.gaps else {})  # shuffled as the other tensors

    def _noted(self, generate, **given):
        made = generate(**given, output_scores=True, return_dict_in_generate=True)
        scores = torch.stack(made.scores, dim=1).log_softmax(-1)
        self.sampled = scores.gather(-1, made.sequences[:, -scores.shape[1] :, None]).squeeze(-1)
        return made.sequences

    def _get_per_token_logps_and_entropies(self, *given, **named):
        found = super()._get_per_token_logps_and_entropies(*given, **named)
        self.newest = found[0].detach()
        return found

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if self.gaps and not self.found:
            counted = inputs["completion_mask"] > 0
            for name, before in (("own", inputs["old_per_token_logps"]), ("sampled", inputs["sampled"])):
                self.found[name] = (self.newest - before).abs()[counted].tolist()
        return loss


class LearningClock(TrainerCallback):
    """Notes the seconds of a step that are not sampling."""

    def __init__(self, steps: list):
        self.steps = steps

    def on_step_begin(self, *_, **__):
        """Begin."""
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        """End, behind the update."""
        self.steps[-1]["learning"] = time.perf_counter() - self.began - self.steps[-1]["sampling"]


def run(job: dict) -> dict:
    """Train, and return what was noted."""
    model = AutoModelForCausalLM.from_pretrained(job["model"], torch_dtype=torch.float32)
    longest, worth = job["longest"], job["worth"]
    sizes = {"per_device_train_batch_size": job["answers"], "num_generations": job["group_size"]}
    sampling = {"max_completion_length": longest, "max_prompt_length": None, "top_p": job["top_p"]}
    rate = {"learning_rate": job["rate"], "lr_scheduler_type": "constant", "max_steps": job["steps"]}
    trainer = TimedTrainer(
        model=model,
        reward_funcs=lambda completion_ids, **_: [min(max(2 - len(ids) / worth, 0), 1) for ids in completion_ids],
        args=GRPOConfig(job["output"], num_iterations=1 + job["gaps"], **sizes, **sampling, **rate, **USUAL, **FAST),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in job["prompts"]]),
        processing_class=AutoTokenizer.from_pretrained(job["model"]),
    )
    trainer.steps, trainer.found, trainer.gaps = [], {}, job["gaps"]
    trainer.add_callback(LearningClock(trainer.steps))
    trainer.train()
    versions = {name: version(name) for name in ("torch", "transformers", "trl")}
    return {"steps": trainer.steps, "gaps": trainer.found, "versions": versions}


if __name__ == "__main__":
    print("\n" + json.dumps([run(job) for job in json.loads(sys.argv[1])]))

"""The forward pass of each model family, in the operators of launch/plan/tape, as paddlenlp 3.0.0b4 writes it.

Local variables live as long as upstream's: they decide what is alive beside what is saved.
"""

from launch.plan.families.blocks import Model
from launch.plan.families.decoder import Decoder
from launch.plan.job import Job

MODELS = {"llama": Decoder, "qwen2": Decoder}


def model_of(job: Job, memory, weights) -> Model:
    return MODELS[job.config["model_type"]](job, memory, weights)

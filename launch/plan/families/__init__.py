"""The forward pass of each model family, in the operators of launch/plan/tape, as paddlenlp 3.0.0b4 writes it.

Local variables live as long as upstream's: they decide what is alive beside what is saved.
"""

from launch.plan.families.blocks import Model
from launch.plan.families.bloom import Bloom
from launch.plan.families.decoder import Decoder
from launch.plan.families.glm import GLM, ChatGLM
from launch.plan.families.glm2 import ChatGLM2
from launch.plan.families.opt import OPT
from launch.plan.job import Job
from launch.plan.tape.autograd import Tensor
from launch.plan.tape.memory import Memory

MODELS = {  # by model_type
    "llama": Decoder,
    "qwen2": Decoder,
    "chatglm": ChatGLM,
    "chatglm_v2": ChatGLM2,
    "bloom": Bloom,
    "glm": GLM,
    "opt": OPT,
}


def model_of(job: Job, memory: Memory, weights: dict[str, Tensor]) -> Model:
    return MODELS[job.config["model_type"]](job, memory, weights)

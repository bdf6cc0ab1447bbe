"""The forward pass of each model family, in the operators of launch/tape, as paddlenlp 3.0.0b4 writes it.

Local variables live as long as upstream's: they decide what is alive beside what is saved.
"""

from launch.families.bloom import Bloom
from launch.families.chatglm_v2 import ChatGLM2
from launch.families.decoder import Decoder
from launch.families.forward import Model, Run
from launch.families.glm import GLM, ChatGLM
from launch.families.opt import OPT
from launch.tape.autograd import Tensor
from launch.tape.memory import Memory

MODELS = {  # by model_type
    "llama": Decoder,
    "qwen2": Decoder,
    "chatglm": ChatGLM,
    "chatglm_v2": ChatGLM2,
    "bloom": Bloom,
    "glm": GLM,
    "opt": OPT,
}


def model_of(job: Run, memory: Memory, weights: dict[str, Tensor]) -> Model:
    return MODELS[job.config["model_type"]](job, memory, weights)

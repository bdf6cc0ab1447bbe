"""Rank functions of test_chunked_loss.py: the loss in chunks beside the loss of whole batches."""

import contextlib
from types import SimpleNamespace

import numpy as np
import paddle
from paddle.base import core
from paddlenlp.transformers.llama.modeling import LlamaLMHead

from launch.families.arithmetic import loss_chunk
from launch.families.registry import FAMILIES
from launch.training.chunked_loss import Chunks, chunk_loss, chunked_head, chunks_of
from launch.training.finetune import AnswerLoss
from launch.training.losses import TokenLoss
from launch.training.model import norms_and_head_in_float32
from launch.training.pretrain import PretrainingLoss
from tests.checkpoint import half_arithmetic
from tests.families.family_ranks import batch, build, grad_norm, load, start_fleet, tiny

ARGS = SimpleNamespace(pipeline_parallel_degree=1, gradient_accumulation_steps=1, dataset_world_size=1)
ANSWERS, PRETRAINING = "answers", "pretraining"


def compare(
    names: list[str], loss: str, chunk: str, dtype: str = "float32", frozen: bool = False, wide: bool = False
) -> dict[str, dict]:
    """By family, what each way gives: see `outcome`."""
    if dtype != "float32":
        half_arithmetic.install()
    return {name: {way: outcome(name, loss, way, dtype, frozen, wide) for way in ("off", chunk)} for name in names}


def outcome(name: str, loss: str, chunk: str, dtype: str, frozen: bool, wide: bool) -> dict:
    """loss, evaluated: of a batch in training and of one in evaluation; correct: tokens, of answers; gradients: of all
    tensors by name, as nested lists of a few of their elements and their norm; logits: whether a forward pass without
    labels gives them. frozen: only the first norm is trained. wide: with --fp32_norms_and_head."""
    model = build(name, tiny(name), dtype=dtype)
    if frozen:
        freeze(model)
    inputs = batch(FAMILIES[name], samples=4)
    without_labels = {key: value for key, value in inputs.items() if key != "labels"}
    inputs["labels"] = some_likely(inputs["labels"], logits_of(model, without_labels))
    chunk_loss(model, FAMILIES[name], chunks(chunk), pipeline=False)
    if wide:
        norms_and_head_in_float32(model, dtype)
    computed = PretrainingLoss() if loss == PRETRAINING else AnswerLoss(model.config.vocab_size, None, ARGS)
    computed.attach(model, ARGS)
    counting = contextlib.nullcontext()
    if loss == ANSWERS:
        computed.token_loss.divisor = 61.0
        counting = computed.token_loss.correct.counting()
    model.train()
    value = computed(model, dict(inputs), return_outputs=False)
    (value * 3).backward()
    model.eval()
    with paddle.no_grad(), counting:
        evaluated = computed(model, dict(inputs), return_outputs=True)[0]
    return {
        "chunked": chunked_head(model) is not None,
        "loss": float(value),
        "evaluated": float(evaluated),
        "correct": computed.token_loss.correct.count if loss == ANSWERS else None,
        "gradients": {key: sample(tensor.grad) for key, tensor in model.named_parameters() if tensor.grad is not None},
        "logits": logits_of(model, without_labels).shape,
    }


def chunks(flag: str) -> Chunks:
    """So many tokens, or off, in training and in evaluation."""
    tokens = 0 if flag == "off" else int(flag)
    return Chunks(tokens, tokens)


def logits_of(model, inputs: dict) -> paddle.Tensor:
    with paddle.no_grad():
        outputs = model(**inputs)
    return outputs[0] if isinstance(outputs, tuple) else outputs


def some_likely(labels: paddle.Tensor, logits: paddle.Tensor) -> paddle.Tensor:
    """Every third label that counts is the most likely id; the last three of the first sample count for nothing."""
    likely = paddle.where(labels == -100, labels, logits.astype("float32").argmax(axis=-1))
    labels[:, ::3] = likely[:, ::3]
    labels[0, -3:] = -100
    return labels


def freeze(model) -> None:
    """All but one vector, in which gradients of all that comes after it arrive."""
    first = next(key for key, tensor in model.named_parameters() if tensor.ndim == 1 and ".0." in key)
    for key, tensor in model.named_parameters():
        tensor.stop_gradient = key != first


def sample(gradient: paddle.Tensor) -> list[float]:
    """Its norm and 50 elements."""
    values = gradient.astype("float32").numpy().flatten()
    return [float(np.linalg.norm(values)), *values[:: max(1, len(values) // 50)].tolist()]


def gradients_of_a_loss_that_is_no_number() -> list[bool]:
    """Whether all elements of the gradients of hidden states and weight are NaN, where a step counts no token."""
    model, token_loss = paddle.nn.Layer(), TokenLoss(256)
    model.lm_head = LlamaLMHead(tiny("llama"))
    chunk_loss(model, FAMILIES["llama"], chunks("10"), pipeline=False)
    hidden_states, labels = paddle.randn([1, 16, model.lm_head.weight.shape[0]]), paddle.full([1, 16], -100, "int64")
    hidden_states.stop_gradient, token_loss.divisor = False, 0.0
    with chunked_head(model).of(labels):
        token_loss(model.lm_head(hidden_states), labels).backward()
    return [bool(tensor.grad.isnan().all()) for tensor in (hidden_states, model.lm_head.weight)]


def auto_chunks(tensor_parallel_degree: int) -> list[int]:
    """Tokens at once, in training and in evaluation, of a 7B model with batches of 8,192 and 4,096 tokens."""
    config = SimpleNamespace(vocab_size=32000, hidden_size=4096)
    batch = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 2, "pipeline_parallel_degree": 1}
    args = SimpleNamespace(loss_chunk_tokens="auto", tensor_parallel_degree=tensor_parallel_degree, **batch)
    chunks = chunks_of(config, args, length=2048, trained=False)
    return [chunks.training, chunks.evaluation]


def peak_of_loss(tokens: int, vocabulary: int, chunk: str, tied: bool, training: bool) -> int:
    """Bytes that Paddle's allocator has in output layer and loss at most, forward and backward, beyond what was there
    before: of one sample of so many tokens, with 16 dimensions."""
    config = tiny("llama", vocab_size=vocabulary, hidden_size=16)
    model = paddle.nn.Layer()
    weights = model.create_parameter([vocabulary, 16]) if tied else None
    model.lm_head = LlamaLMHead(config, weights, transpose_y=tied)
    tokens_at_once = (loss_chunk(chunk, tokens, vocabulary, 16, trained) for trained in (True, False))
    chunk_loss(model, FAMILIES["llama"], Chunks(*tokens_at_once), pipeline=False)
    token_loss = TokenLoss(vocabulary)
    labels = paddle.randint(0, vocabulary, [1, tokens])
    hidden_states = paddle.randn([1, tokens, 16])
    hidden_states.stop_gradient = not training
    head, before = chunked_head(model), core.host_memory_stat_current_value("Allocated", 0)
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    with head.of(labels) if head else contextlib.nullcontext(), paddle.set_grad_enabled(training):
        loss = token_loss(model.lm_head(hidden_states), labels)
    if training:
        loss.backward()
    return core.host_memory_stat_peak_value("Allocated", 0) - before


def float16_gradients(scale: float) -> dict[str, dict]:
    """Of a loss in float16 with this scale, by way: gradients of hidden states and weight, as nested lists, divided by
    the scale. Half of the ids are so unlikely that float16 cannot hold their probability."""
    half_arithmetic.install()
    found = {}
    for way in ("off", "10"):
        paddle.seed(1)
        model, token_loss = paddle.nn.Layer(), TokenLoss(256)
        model.lm_head = LlamaLMHead(tiny("llama"))
        weight = paddle.randn(model.lm_head.weight.shape) * 0.02
        weight[0, 128:] -= 8.0  # the first dimension is 2: logits lower by 16
        model.lm_head.weight.set_value(weight)
        model.to(dtype="float16")
        hidden_states, labels = paddle.randn([2, 16, weight.shape[0]]), paddle.randint(0, 128, [2, 16])
        hidden_states[:, :, 0] = 2.0
        hidden_states = hidden_states.astype("float16")
        hidden_states.stop_gradient, token_loss.divisor = False, 32.0
        chunk_loss(model, FAMILIES["llama"], chunks(way), pipeline=False)
        head = chunked_head(model)
        if head:
            head.scaler = SimpleNamespace(_scale=paddle.to_tensor([scale]))
        with head.of(labels) if head else contextlib.nullcontext():
            loss = token_loss(model.lm_head(hidden_states), labels)
        (loss * scale).backward()
        gradients = {"hidden states": hidden_states.grad, "weight": model.lm_head.weight.grad}
        found[way] = {key: (tensor.astype("float32") / scale).tolist() for key, tensor in gradients.items()}
    return found


def gradients_of_unequal_tokens() -> list[bool]:
    """Whether all elements of the gradients are NaN where one token weighs more than the others."""
    model = paddle.nn.Layer()
    model.lm_head = LlamaLMHead(tiny("llama"))
    chunk_loss(model, FAMILIES["llama"], chunks("10"), pipeline=False)
    hidden_states, labels = paddle.randn([1, 16, model.lm_head.weight.shape[0]]), paddle.ones([1, 16], "int64")
    hidden_states.stop_gradient = False
    with chunked_head(model).of(labels):
        losses = model.lm_head(hidden_states)
    (losses.sum() + losses[0, 3].sum()).backward()
    return [bool(tensor.grad.isnan().all()) for tensor in (hidden_states, model.lm_head.weight)]


def of_ranks(names: list[str], directory: str, tensor_parallel: int, chunk: str) -> dict[str, dict[str, float]]:
    """By family, of its saved model divided over the ranks: the loss of the answers of a batch, the norm of the
    gradient."""
    start_fleet(mp_degree=tensor_parallel)
    found = {}
    for name in names:
        model, family = load(name, f"{directory}/{name}", tensor_parallel), FAMILIES[name]
        chunk_loss(model, family, chunks(chunk), pipeline=False)
        computed = AnswerLoss(model.config.vocab_size, None, ARGS)
        computed.attach(model, ARGS)
        computed.token_loss.divisor = 61.0
        model.train()
        loss = computed(model, batch(family, samples=4), return_outputs=False)
        loss.backward()
        found[name] = {"loss": float(loss), "grad_norm": grad_norm(model, tensor_parallel)}
    return found

"""A run of a method: the Trainer is built from the flags, trained and evaluated.

Methods differ in a Training: which data they open, and which loss they have.
"""

import copy
from typing import Any

from paddlenlp.peft import LoRAModel

from launch.adapters.adapter_files import ADAPTERS
from launch.adapters.add import add_adapter, base_format
from launch.adapters.pissa import begin_pissa
from launch.adapters.quantized_layers import use_quantized, use_quantized_head
from launch.checkpoint.continuation import Continuation
from launch.checkpoint.ranks import check_world, total
from launch.config.run_config import RunConfig
from launch.cpu.bfloat16 import BFloat16Products
from launch.families.arithmetic import ModelShape
from launch.families.registry import family_of_config
from launch.methods.method import Method
from launch.offload.embedding import use_host_embedding
from launch.reporting.announce import announce
from launch.reporting.throughput import Throughput
from launch.switches import FLASH_MASK
from launch.training.arguments import make_arguments
from launch.training.chunked_loss import chunk_loss, chunks_of
from launch.training.data import TrainingData, require_tokenizer
from launch.training.decisions import decide
from launch.training.device import device_peak, measure_network, set_device
from launch.training.evaluation import Answers
from launch.training.losses import Loss
from launch.training.model import (
    build_config,
    build_model,
    keep_activations,
    load_tokenizer,
    matmul_dtype,
    measured_product,
    products_on_cpu,
    speed_up,
    vocabulary_lines,
    widen,
)
from launch.training.reporter import PlannedMemory, finish
from launch.training.resuming import (
    identify_evaluation,
    identify_model,
    open_output,
    require_same_model,
    weights_identity,
)
from launch.training.sequence_ranks import TokensOfRank, share_sequences
from launch.training.sequence_slices import slice_sequence
from launch.training.trainer import Trainer
from launch.watch import BUILDING, HangTimer, RunPhase, out_of_memory_explained


class Training:
    """The training of a run by its method: the part of a Method that needs Paddle.

    Attributes:
        method: Its method.
        loss_flags: The flags that decide which loss is trained, beside the model's. reference_weights: the loss
            compares the model with its weights before training. needs_second_copy: the run sets second_copy, the
            model of copied_args: as it is before training, or a teacher.
    """

    method: Method
    loss_flags: dict[str, Any] = {}
    reference_weights = needs_second_copy = False
    second_copy: Any = None

    def __init__(self, *arguments):
        """Take the arguments: objects of argument_classes(method)."""
        self.arguments = arguments
        self.model_args, self.adapter_args, self.data_args, *_, self.training_args = arguments
        self.copied_args = self.model_args

    @property
    def sequence_length(self) -> int:
        """Tokens of a row, at most."""
        return getattr(self.data_args, self.method.length_flag)

    @property
    def rows(self) -> int:
        """Rows of a sample in a batch."""
        return self.method.rows_per_sample(self.arguments[-2])

    def open_data(self, tokenizer, config, continuation: Continuation, row_ends: bool) -> TrainingData:
        """Open the data. continuation: the run's. row_ends: whether packed rows are masked by FlashMask."""
        raise NotImplementedError

    def prepare(self, model) -> list[str]:
        """Change what the model computes in training; lines about it."""
        return []

    def make_loss(self, model, data: TrainingData) -> Loss:
        """Return the loss of the method."""
        raise NotImplementedError

    def random_weights_loss(self, shape: ModelShape) -> float | None:
        """Return the first loss of random weights, None where the weights are pretrained."""
        return None

    def make_answers(self, tokenizer, model) -> Answers | None:
        """Return the evaluation by answers, None where the loss is enough."""
        return None


class Run:
    """A run of one method.

    Attributes:
        config: The user's request.
        started: time.time() at the start of the process.
    """

    def __init__(self, config: RunConfig, started: float):
        self.training = config.method.load_training()(*make_arguments(config))
        self.config, self.started = config, started
        self.continuation = Continuation()  # build() finds it

    def build(self, lines: list[str]) -> Trainer:
        """Return the Trainer, and print on rank 0 what it will do.

        Args:
            lines: Printed before these.
        """
        training, args = self.training, self.training.training_args
        model_args, adapter_args = training.model_args, training.adapter_args
        check_world()
        set_device(args.device, args.deterministic)
        lines = lines + measure_network()
        if training.method.reads_rows:  # before anything is written
            tokenizer = require_tokenizer(load_tokenizer(model_args))
        continuation = self.continuation = open_output(args)
        products, obstacle = products_on_cpu(args)
        with HangTimer(args.hang_factor, args.hang_seconds).beside_steps():  # trials may wait for other ranks
            decisions = decide(model_args, adapter_args, training.data_args, args, obstacle)
        config = build_config(
            model_args, training.sequence_length, args, decisions, continuation, training.method.reward_model
        )
        if not training.method.reads_rows:
            tokenizer = load_tokenizer(model_args)
        data = training.open_data(tokenizer, config, continuation, decisions.uses(FLASH_MASK))
        if args.sequence_ranks > 1:
            data.collate = TokensOfRank(data.collate, args.dataset_rank % args.sequence_ranks, args.sequence_ranks)
        with out_of_memory_explained(RunPhase(BUILDING), args):
            model, model_lines = build_base(training, config, products, model_args)
            if training.needs_second_copy:
                other = build_config(training.copied_args, training.sequence_length, args, decisions, continuation)
                training.second_copy, _ = build_base(training, other, products, training.copied_args)
                if quantized := base_format(adapter_args):
                    use_quantized(training.second_copy, quantized)
                if products:
                    products.replace_linears(training.second_copy)
        lines += [*vocabulary_lines(config, model_args), *model_lines]
        lines += [*keep_activations(model, args), *training.prepare(model)]
        lines += share_sequences(model, args.sequence_ranks)
        model, adapter_lines = add_adapter(model, model_args, adapter_args, args.seed)
        if products:
            adapter_lines.append(products.replace_linears(model))
        identity = identify_model(model, model_args, adapter_args, args.seed, training.reference_weights)
        if training.copied_args is not model_args:
            identity["teacher"] = weights_identity(training.second_copy, training.copied_args, args.seed)
        require_same_model(continuation, identity, args)
        if adapter_args.pissa and args.do_train and isinstance(model, LoRAModel):
            adapter_lines.append(begin_pissa(model, continuation.checkpoint, args))
        trainer = build_trainer(training, model, tokenizer, data, identity)
        trainer.add_callback(PlannedMemory(self.config))
        announce([*lines, *adapter_lines, *data.lines], decisions, trainer)
        return trainer

    def train(self, trainer: Trainer) -> bool:
        """Train, and return whether training has come to its end, with the model or adapter written."""
        trainer.train(self.continuation)
        if trainer.checkpointer.stopped_by:
            trainer.checkpointer.print_how_to_continue()
            return False
        trainer.result.save()
        return True

    def finish(self, trainer: Trainer) -> None:
        """Evaluate the weights as they are now, where the flags say so, and write run_summary.json."""
        evaluation = trainer.final_evaluation() if self.training.training_args.do_eval else None
        finish(self.training.arguments, trainer, evaluation, self.started)


def build_base(training: Training, config, products: BFloat16Products | None, model_args) -> tuple[Any, list[str]]:
    """Return the model of these arguments, and lines about how it computes. products: see products_on_cpu."""
    adapter_args, args = training.adapter_args, training.training_args
    model = build_model(config, model_args, args, base_format(adapter_args))
    trained = not (adapter_args.lora or adapter_args.prefix_tuning)
    lines = []
    use_quantized_head(model)
    if args.offload_embedding:
        lines += use_host_embedding(model)
    if products and not model_args.fp32_norms_and_head:
        products.replace_head(model)
    if not training.method.reward_model:
        rows = bool(adapter_args.trainable_token_indices)
        length = training.rows * training.sequence_length // args.sequence_ranks
        chunks = chunks_of(config, args, length, trained, rows)
        lines += chunk_loss(model, family_of_config(config.to_dict()), chunks, args.pipeline_parallel_degree > 1)
    lines += [*speed_up(model, args, products is not None), *widen(model, model_args, args)]
    return model, [*lines, *slice_sequence(model, args.sequence_slices)]


def build_trainer(training: Training, model, tokenizer, data: TrainingData, model_identity: dict) -> Trainer:
    """Return the Trainer of a run with all of its parts."""
    args = copy.copy(training.training_args)
    args.max_steps = data.steps  # what the data make of --num_train_epochs
    peak = device_peak(matmul_dtype(args), measured_product(args))
    throughput = Throughput(
        shape=ModelShape.from_config(model.config.to_dict()),
        sequence_length=data.mean_length,
        peak_flops=total(peak.flops),
        note=peak.note,
        frozen=isinstance(model, ADAPTERS),
    )
    return Trainer(
        model,
        tokenizer,
        args,
        data,
        training.make_loss(model, data),
        throughput,
        model_identity,
        {name: value for part in training.arguments[:-1] for name, value in vars(part).items()},
        identify_evaluation(data, training.loss_flags),
        random_weights_loss=training.random_weights_loss(throughput.shape),
        answers=training.make_answers(tokenizer, model),
        keep_best=training.method.reads_rows,
    )

"""Output layer and cross-entropy together, over chunks of tokens: logits of [tokens, vocabulary] never exist.

The output layer gives the losses of its tokens in place of logits, [batch, length, 1] in float32; a criterion that gets
a last axis of 1 takes them as they are. Logits, losses and gradients of a chunk come from the operators that compute
those of a whole batch otherwise, and no product is done twice.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.distributed import fleet
from paddle.distributed.fleet.utils.sequence_parallel_utils import GatherOp
from paddlenlp.transformers import PretrainedConfig
from paddlenlp.transformers.model_outputs import ModelOutput

from data_tools.dialogues.encoding import IGNORED
from launch.adapters.quantized_layers import PackedColumns
from launch.adapters.token_rows import RowProducts, RowsGradient, TrainedRows
from launch.families.arithmetic import PRODUCT_BYTES, loss_chunk, rows_of_part
from launch.families.family import Family, Head
from launch.upstream.token_loss import token_entropies


@dataclass(frozen=True)
class Chunks:
    """Numbers of tokens whose logits exist at once in training and in evaluation; 0: a whole batch's."""

    training: int
    evaluation: int


class CorrectTokens:
    """The number of tokens whose most likely id was right, of the batches computed inside `counting`."""

    def __init__(self):
        self.active, self.count = False, 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count from 0 while this lasts."""
        self.active, self.count = True, 0
        try:
            yield
        finally:
            self.active = False

    def add(self, logits: paddle.Tensor, labels: paddle.Tensor, sharded: bool) -> None:
        """Count correct tokens. logits: [..., vocabulary or this rank's part of it]; labels: [...]."""
        if self.active:
            right = (most_likely(logits, sharded) == labels) & (labels != IGNORED)
            self.count += int(right.sum())


def most_likely(logits: paddle.Tensor, sharded: bool) -> paddle.Tensor:
    """Return the id with the largest logit, int64 [...].

    Args:
        logits: [..., vocabulary].
        sharded: Whether each rank of tensor parallelism has a part of the vocabulary.
    """
    ids = logits.argmax(axis=-1)
    if not sharded:
        return ids
    group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
    largest, all_ids = [], []
    paddle.distributed.all_gather(largest, logits.max(axis=-1), group=group)
    paddle.distributed.all_gather(all_ids, ids + group.rank * logits.shape[-1], group=group)
    owner = paddle.stack(largest).argmax(axis=0, keepdim=True)
    return paddle.take_along_axis(paddle.stack(all_ids), owner, axis=0).squeeze(0)


class ChunkedEntropy(PyLayer):
    """Cross-entropy of hidden_states [tokens, hidden] times the output layer's weight, float32 [tokens, 1].

    The gradients are computed together with the losses, as if the derivative by each loss were 1. The actual derivative
    is known in the backward pass, which multiplies by it: it must be the same for all target tokens. float16 holds no
    small numbers, so gradients are multiplied by about the derivative before they are rounded
    (ChunkedHead.expected_scale).
    """

    @staticmethod
    def forward(ctx, hidden_states, weight, labels, chunk: int, head: "ChunkedHead", trained: tuple[bool, bool]):
        """Return the losses. trained: whether hidden_states and weight get a gradient."""
        tokens = hidden_states.shape[0]
        losses = paddle.empty([tokens, 1], dtype="float32")
        hidden_gradient = paddle.empty_like(hidden_states) if trained[0] else None
        products = head.products_with(weight)
        weight_gradient = head.gradient_of(products, hidden_states) if trained[1] else None
        scale = head.expected_scale(hidden_states)
        for start in range(0, tokens, chunk):
            part = slice(start, min(start + chunk, tokens))
            inputs = hidden_states[part]
            losses[part], gradient = head.entropies(inputs, products, labels[part], any(trained), part, scale)
            if hidden_gradient is not None:
                hidden_gradient[part] = products.hidden(gradient)
            if weight_gradient is not None:
                weight_gradient.add(inputs, gradient)
            del gradient  # before the logits of the next chunk
        ctx.gradients, ctx.chunk, ctx.scale = (hidden_gradient, weight_gradient), chunk, scale
        ctx.quantized = isinstance(weight, PackedColumns)
        return losses

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradients. No number comes to the host, which would wait for the forward pass."""
        hidden_gradient, weight_gradient = ctx.gradients
        ctx.gradients = None
        factor = gradient.max()
        # Where tokens that count weigh differently, the gradients are NaN, and the run ends: none is silently wrong.
        same = ((gradient == factor) | (gradient == 0)).all()
        factor = paddle.where(same, factor, paddle.full_like(factor, float("nan")))
        if ctx.scale is not None:
            factor = factor / ctx.scale
        return (
            hidden_gradient if hidden_gradient is None else multiplied(hidden_gradient, factor, ctx.chunk),
            *([] if ctx.quantized else [weight_gradient and weight_gradient.finish(factor)]),
            None,
        )


def multiplied(rows: paddle.Tensor, factor: paddle.Tensor, chunk: int) -> paddle.Tensor:
    """Return the rows times a float32 scalar, in place.

    Narrower dtypes are multiplied in float32, `chunk` rows at a time.
    """
    if rows.dtype == paddle.float32:
        return rows.multiply_(factor)
    for start in range(0, rows.shape[0], chunk):
        part = slice(start, min(start + chunk, rows.shape[0]))
        rows[part] = rows[part].astype("float32").multiply_(factor).astype(rows.dtype)
    return rows


class WeighedEntropy(PyLayer):
    """ChunkedEntropy where tokens weigh differently, as in preferences.

    The derivative by each loss is known in the backward pass alone, so that is where the logits of a chunk are
    recomputed, for their gradient.
    """

    @staticmethod
    def forward(ctx, hidden_states, weight, labels, chunk: int, head: "ChunkedHead", trained: tuple[bool, bool]):
        """Return the losses."""
        tokens, products = hidden_states.shape[0], head.products_with(weight)
        losses = paddle.empty([tokens, 1], dtype="float32")
        for start in range(0, tokens, chunk):
            part = slice(start, min(start + chunk, tokens))
            losses[part], _ = head.entropies(hidden_states[part], products, labels[part], False, part)
        ctx.inputs = (hidden_states, weight, labels) if any(trained) else None
        ctx.chunk, ctx.head, ctx.trained = chunk, head, trained
        return losses

    @staticmethod
    def backward(ctx, factors):
        """Return the gradients. factors: float32 [tokens, 1], with the loss scale."""
        hidden_states, weight, labels = ctx.inputs
        ctx.inputs, head = None, ctx.head
        hidden_gradient = paddle.empty_like(hidden_states) if ctx.trained[0] else None
        products = head.products_with(weight)
        weight_gradient = head.gradient_of(products, hidden_states) if ctx.trained[1] else None
        with paddle.no_grad(), paddle.amp.auto_cast(False):
            for start in range(0, hidden_states.shape[0], ctx.chunk):
                part = slice(start, min(start + ctx.chunk, hidden_states.shape[0]))
                inputs = hidden_states[part]
                _, gradient = head.entropies(inputs, products, labels[part], True, part, factors=factors[part])
                if hidden_gradient is not None:
                    hidden_gradient[part] = products.hidden(gradient)
                if weight_gradient is not None:
                    weight_gradient.add(inputs, gradient)
                del gradient  # before the logits of the next chunk
        of_weight = [] if isinstance(weight, PackedColumns) else [weight_gradient]
        return hidden_gradient, *(one and one.finish(paddle.ones([])) for one in of_weight), None


class WeightProducts:
    """Products with the weight of an output layer, [hidden, vocabulary], transposed [vocabulary, hidden].

    launch/cpu/bfloat16.py has them in bfloat16.
    """

    def __init__(self, weight: paddle.Tensor, transposed: bool):
        self.weight, self.transposed = weight, transposed

    def logits(self, inputs: paddle.Tensor) -> paddle.Tensor:
        """Return the logits of inputs [tokens, hidden]."""
        return paddle.matmul(inputs, self.weight, transpose_y=self.transposed)

    def hidden(self, gradient: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the inputs. gradient: of the logits."""
        return paddle.matmul(gradient, self.weight, transpose_y=not self.transposed)

    def add(self, total: paddle.Tensor, left: paddle.Tensor, right: paddle.Tensor) -> None:
        """Add the product of left, transposed, with right to a float32 total."""
        paddle.addmm_(total, left.t(), right)


class WeightGradient:
    """The sum over chunks in float32. In half precision in pieces, as the products of a chunk have to be widened."""

    def __init__(self, products: WeightProducts):
        self.dtype, self.products = products.weight.dtype, products
        rows, columns = products.weight.shape
        self.step = rows if self.dtype == paddle.float32 else max(1, PRODUCT_BYTES // (6 * columns))
        starts = range(0, rows, self.step)
        self.sums = [paddle.zeros([min(self.step, rows - start), columns], "float32") for start in starts]

    def add(self, inputs: paddle.Tensor, gradient: paddle.Tensor) -> None:
        """Add the gradient of a chunk.

        Args:
            inputs: [tokens, hidden].
            gradient: Of the logits, [tokens, vocabulary].
        """
        left, right = (gradient, inputs) if self.products.transposed else (inputs, gradient)
        if self.dtype == paddle.float32:
            self.products.add(self.sums[0], left, right)
            return
        for index, total in enumerate(self.sums):
            rows = left[:, index * self.step : (index + 1) * self.step]
            total.add_(paddle.matmul(rows, right, transpose_x=True).astype("float32"))

    def finish(self, factor: paddle.Tensor) -> paddle.Tensor:
        """Return the sum times a float32 scalar, in the dtype of the weight."""
        pieces = [self.sums.pop(0).multiply_(factor).astype(self.dtype) for _ in range(len(self.sums))]
        return pieces[0] if len(pieces) == 1 else paddle.concat(pieces)


class UpdatedByRows:
    """The gradient of a weight [hidden, vocabulary] that is made and used some rows at a time, never as a whole.

    What it is made from is kept in its place: the gradients of the logits, [tokens, vocabulary].
    """

    def __init__(self, weight: paddle.Tensor, inputs: paddle.Tensor, update: Callable):
        self.weight, self.inputs, self.update = weight, inputs, update
        self.gradients = paddle.empty([inputs.shape[0], weight.shape[1]], inputs.dtype)
        self.tokens = 0

    def add(self, inputs: paddle.Tensor, gradient: paddle.Tensor) -> None:
        """Keep the gradient of the next chunk's logits."""
        self.gradients[self.tokens : self.tokens + gradient.shape[0]] = gradient
        self.tokens += gradient.shape[0]

    def finish(self, factor: paddle.Tensor) -> None:
        """Update the weight by its gradient times a float32 scalar."""
        rows, columns = self.weight.shape
        step = rows_of_part(rows, columns)
        for start in range(0, rows, step):
            part = self.inputs[:, start : start + step]
            gradient = paddle.matmul(part, self.gradients, transpose_x=True).astype("float32").multiply_(factor)
            self.update(self.weight, start * columns, gradient)
            del gradient  # before the next


class ChunkedHead(paddle.nn.Layer):
    """A base class to put before an output layer's own: within `of` it gives losses in place of logits.

    They are losses where the batch is computed in chunks.

    Attributes:
        form: Of the family.
        deferred: Whether the labels are there only after the forward pass, as in a pipeline: then the layer gives
            hidden states, and the criterion calls `scores`.
        correct: Counts in evaluations, too.
        scaler: Of a float16 loss, once training begins.
        micro_batches: That make a step on this rank.
        weighed: Whether tokens weigh differently in the loss.
        products_class: In place of WeightProducts.
        sampled: Gives the losses of logits by the distribution that tokens were sampled from, in place of the model's:
            from logits and labels of a chunk, and the chunk.
        trained_rows: The rows of some tokens that are trained beside a frozen weight.
        update: Of --update_in_backward: updates some elements of a weight by their gradient. by_rows: whether the
            batch does so.
    """

    config: PretrainedConfig
    chunks: Chunks
    form: Head
    deferred: bool
    correct: CorrectTokens
    labels: paddle.Tensor | None
    scaler: Any
    micro_batches: int
    weighed: bool = False
    products_class: Callable[[paddle.Tensor, bool], Any] | None = None
    sampled: Callable[[paddle.Tensor, paddle.Tensor, slice], paddle.Tensor] | None = None
    trained_rows: TrainedRows | None = None
    update: Callable | None = None
    by_rows: bool = False

    @contextlib.contextmanager
    def of(self, labels: paddle.Tensor) -> Iterator[None]:
        """Set the labels, [batch, length], while the model computes their batch."""
        self.labels = labels
        try:
            yield
        finally:
            self.labels = None

    def forward(self, hidden_states, *args, **kwargs):
        """Return losses, hidden states or logits."""
        if self.deferred and self.labels is None:
            return self.as_read(hidden_states)
        if self.labels is None or not self.chunk:
            logits = super().forward(hidden_states, *args, **kwargs)
            return self.trained_rows.replaced(logits, self.as_read(hidden_states)) if self.trained_rows else logits
        return self.losses(self.as_read(hidden_states), self.labels)

    @property
    def chunk(self) -> int:
        """Number of tokens of a chunk in the current pass.

        A reference reads the batches of training, without gradients.
        """
        training = paddle.is_grad_enabled() or (self.weighed and self.training)
        return self.chunks.training if training else self.chunks.evaluation

    def as_read(self, hidden_states) -> paddle.Tensor:
        """Return the inputs of the product with the weight."""
        if isinstance(hidden_states, ModelOutput):
            hidden_states = hidden_states["last_hidden_state"]
        if paddle.is_autocast_enabled():
            hidden_states = hidden_states.astype(paddle.get_autocast_dtype())
        return hidden_states

    def scores(self, hidden_states: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the inputs of a criterion: losses, or the logits of a batch that is computed whole."""
        return self.losses(hidden_states, labels) if self.chunk else super().forward(hidden_states)

    def losses(self, hidden_states: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return float32 [batch, length, 1], or [length, batch, 1] where the logits of the layer are so.

        Args:
            hidden_states: As the layer reads them.
            labels: [batch, length].
        """
        length_first = self.form.reads_length_first
        labels = labels.t() if length_first else labels
        if self.config.sequence_parallel:
            hidden_states = GatherOp.apply(hidden_states)
        kept = self.own_weight
        weight = kept.astype(hidden_states.dtype)
        if self.sharded(weight):
            group = fleet.get_hybrid_communicate_group().get_model_parallel_group()
            identity: Any = paddle.distributed.collective._c_identity  # its stub says None, too
            hidden_states = identity(hidden_states, group=group)
        stored = next(iter(self._parameters.values()), None) is kept and weight.dtype == kept.dtype
        if self.rows:  # get the gradient in place of the weight
            weight = self.rows.values.astype(hidden_states.dtype)
        recording = paddle.is_grad_enabled()
        trained = tuple(recording and not tensor.stop_gradient for tensor in (hidden_states, weight))
        flat = hidden_states.reshape([-1, hidden_states.shape[-1]])
        self.by_rows = self.update is not None and stored and not self.transposed
        if self.by_rows:  # for autograd it has no gradient
            weight = weight.detach()
        with paddle.amp.auto_cast(False):
            entropy = WeighedEntropy if self.weighed else ChunkedEntropy
            losses = entropy.apply(flat, weight, labels.flatten(), self.chunk, self, trained)
        losses = losses.reshape([*labels.shape, 1])
        return losses.transpose([1, 0, 2]) if length_first and not self.form.gives_length_first else losses

    @property
    def own_weight(self) -> Any:
        """The layer's quantized weight, its one parameter, or what stands in its place (launch/training/model.py)."""
        return getattr(self, "packed", None) or getattr(self, next(iter(self._parameters), "weight"))  # GLM's has none

    @property
    def rows(self) -> TrainedRows | None:
        """The trained rows that count now."""
        return self.trained_rows if self.trained_rows and not self.trained_rows.off else None

    def products_with(self, weight: paddle.Tensor | PackedColumns) -> Any:
        """Return the products of a batch with the weight, or with trained rows and the weight around them."""
        if isinstance(weight, PackedColumns):
            return weight
        products = self.products_class or WeightProducts
        if not self.rows:
            return products(weight, self.transposed)
        return RowProducts(products(self.own_weight.astype(weight.dtype), self.transposed), weight, self.rows.ids)

    def gradient_of(self, products: WeightProducts | RowProducts, inputs: paddle.Tensor):
        """Return what gathers the gradient of a weight. inputs: of all tokens, [tokens, hidden]."""
        if self.by_rows and self.update:
            return UpdatedByRows(next(iter(self._parameters.values())), inputs, self.update)
        return RowsGradient(products) if isinstance(products, RowProducts) else WeightGradient(products)

    def expected_scale(self, hidden_states: paddle.Tensor) -> paddle.Tensor | None:
        """Return about the derivative of the scaled loss by a token's: a power of 2 if the loss scale is one.

        It is None where gradients need no scale, as in all dtypes but float16.
        """
        if self.scaler is None or hidden_states.dtype != paddle.float16:
            return None
        tokens = hidden_states.shape[0] * self.micro_batches
        return self.scaler._scale * 2.0 ** -(tokens.bit_length() - 1)

    def entropies(
        self,
        inputs: paddle.Tensor,
        products: WeightProducts | RowProducts,
        labels: paddle.Tensor,
        trained: bool,
        part: slice,
        scale: paddle.Tensor | None = None,
        factors: paddle.Tensor | None = None,
    ) -> tuple[paddle.Tensor, Any]:
        """Return the losses of a chunk, and the gradient of their sum by the logits where something is trained.

        The gradient is times scale where there is one. part: of the batch's tokens, the chunk. factors: float32
        [tokens, 1], how much each loss counts in the sum; default: 1.
        """
        logits: Any = products.logits(inputs).astype("float32")
        logits.stop_gradient = not trained
        with paddle.enable_grad():
            if self.sampled:
                losses = self.sampled(logits, labels, part)
            else:
                losses = token_entropies(logits, labels, logits.shape[-1] < self.config.vocab_size)
        self.correct.add(logits, labels, logits.shape[-1] < self.config.vocab_size)
        if not trained:
            return losses, None
        paddle.autograd.backward([losses], [factors])
        gradient = logits.grad if scale is None else logits.grad.multiply_(scale)
        return losses.detach(), gradient.astype(inputs.dtype)

    @property
    def transposed(self) -> bool:
        """Whether the weight is [vocabulary, hidden], like an embedding's."""
        return getattr(self, "transpose_y", "decoder_weight" in self._parameters)

    def vocabulary(self, weight: paddle.Tensor) -> int:
        """Return the number of ids that this rank has."""
        return weight.shape[0 if self.transposed else 1]

    def sharded(self, weight: paddle.Tensor) -> bool:
        """Return whether this rank of tensor parallelism has a part of the vocabulary."""
        return self.vocabulary(weight) < self.config.vocab_size


class GivenLosses(paddle.nn.Layer):
    """The loss_func of a criterion of paddlenlp, whose scores may be losses already."""

    def __init__(self, loss_func):
        super().__init__()
        self.loss_func = loss_func

    def forward(self, scores, labels):
        """Return the losses."""
        return scores if scores.shape[-1] == 1 else self.loss_func(scores, labels)


def chunks_of(config: PretrainedConfig, args, length: int, trained: bool, rows: bool = False) -> Chunks:
    """Return the chunks that --loss_chunk_tokens means for batches of samples of `length` tokens in all rows together.

    The plan decides alike (launch/plan/job.py).

    Args:
        trained: Whether the output layer is trained.
        rows: Whether rows of it are: then the losses of a batch that needs no chunks are those of one chunk.
        config: Of the model.
        args: The flags.
        length: Of a sample.
    """
    ranks = max(args.tensor_parallel_degree, 1)  # upstream's is -1 on one process
    vocabulary = config.vocab_size // (ranks if config.vocab_size % ranks == 0 else 1)
    batch = args.per_device_train_batch_size
    evaluated = batch if args.pipeline_parallel_degree > 1 else args.per_device_eval_batch_size
    training = loss_chunk(args.loss_chunk_tokens, batch * length, vocabulary, config.hidden_size, trained)
    evaluation = loss_chunk(args.loss_chunk_tokens, evaluated * length, vocabulary, config.hidden_size, False)
    if rows:
        return Chunks(training or batch * length, evaluation or evaluated * length)
    return Chunks(training, evaluation)


def chunk_loss(model, family: Family, chunks: Chunks, pipeline: bool) -> list[str]:
    """Let a model that has just been built compute its loss in chunks; lines for the user."""
    if not (chunks.training or chunks.evaluation):
        return []
    head = output_layer(model, family.head.path, pipeline)
    if head is not None:
        head.__class__ = type(f"Chunked{type(head).__name__}", (ChunkedHead, type(head)), {})
        head.chunks, head.form, head.deferred, head.labels = chunks, family.head, pipeline, None
        head.correct, head.scaler, head.micro_batches = CorrectTokens(), None, 1
    criteria = model._loss_fn if pipeline else [getattr(model, "criterion", None)]
    for criterion in criteria:
        if criterion is not None:
            criterion.loss_func = GivenLosses(criterion.loss_func)
    training, evaluation = (chunk or "all" for chunk in (chunks.training, chunks.evaluation))
    return [f"loss: logits of {training} tokens at once in training, of {evaluation} in evaluation"]


def output_layer(model, path: str, pipeline: bool) -> paddle.nn.Layer | None:
    """Return the output layer of a model; None on a stage of a pipeline that is not its last."""
    if pipeline:
        return model.run_function[-1] if model._stage_id == model._num_stages - 1 else None
    return operator.attrgetter(path)(model)


def chunked_head(model) -> ChunkedHead | None:
    """Return the output layer of a model whose loss is computed in chunks."""
    return next((layer for layer in model.sublayers() if isinstance(layer, ChunkedHead)), None)

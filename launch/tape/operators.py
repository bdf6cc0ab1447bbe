"""What Paddle's operators allocate and save, measured operator by operator with its allocation statistics.

Each takes and gives Tensors (launch/tape/autograd.py). A trained weight is a Tensor without storage whose node is
a Leaf; a frozen one has no node. Nothing is saved where no input needs a gradient.

A tensor is alive until the last operator that reads it is done, and as long as `alive` names it.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod

from launch.tape.autograd import FLOAT32, Computed, Deferred, Leaf, Memory, Node, Storage, Tensor, backward
from launch.tape.quantized import Format, columns_of_part

# Bytes of a half-precision product of a chunk with its float32 copy (launch/training/chunked_loss.py).
PRODUCT_BYTES = 64 * 2**20


class Operators:
    """The operators of a forward pass, as Paddle computes them."""

    def __init__(self, memory: Memory):
        self.memory = memory

    # ---- making tensors

    def new(self, shape: Iterable[int], item: int) -> Tensor:
        """Return a new tensor."""
        out = Tensor(shape, item, None)
        out.storage = self.memory.take(out.nbytes)
        return out

    def alive(self, *tensors: Tensor | None) -> None:
        """Mark tensors as alive at this moment."""
        self.memory.alive(*[x.storage for x in tensors if x is not None])

    def record(
        self,
        out: Tensor,
        inputs: Sequence[Tensor],
        saved: Sequence[Tensor] = (),
        alias: int | None = None,
        temporary: int = 0,
    ) -> Tensor:
        """Give an output its node. alias: the input, by its place, that shares its gradient."""
        memory, sources, gathered, copies, shared = self.memory, [], 0, 0, None
        for index, x in enumerate(inputs):  # here and below no helpers: half of a plan's time is spent in these lines
            gathered += x.gathered
            if x.node is not None:
                shared = len(sources) if index == alias else shared
                sources.append((x.node, x.slot, x.nbytes))
                copies += x.node.gathered
        if gathered:
            memory.take(gathered)
        memory.alive(out.storage, *[x.storage for x in inputs], *[x.storage for x in saved])
        if sources and memory.recording:
            copies += sum([x.nbytes for x in saved if x.strided])
            kept = [x.storage for x in saved if x.storage]
            out.node = Node(memory, sources, kept, shared, temporary + copies + gathered)
        return out

    def _result(self, shape: Iterable[int], item: int, *inputs: Tensor) -> Tensor:
        """Return a new tensor.

        Inputs that are not in order are copied; the copies live as long as the kernel runs.
        """
        copies = self._copies(*inputs)
        out = self.new(shape, item)
        if copies:
            self.memory.alive(*copies)
        return out

    def _copies(self, *inputs: Tensor) -> list[Storage]:
        return [self.memory.take(x.nbytes) for x in inputs if x.strided]

    def _elementwise(
        self,
        x: Tensor,
        shape: Iterable[int] = (),
        item: int = 0,
        saved: Sequence[Tensor] = (),
        alias: int | None = None,
    ) -> Tensor:
        return self.record(self._result(shape or x.shape, item or x.item, x), [x], saved, alias)

    # ---- products

    def matmul(self, x: Tensor, y: Tensor, transpose_y: bool = False) -> Tensor:
        """Return the matrix product."""
        out = self._result((*x.shape[:-1], y.shape[-2] if transpose_y else y.shape[-1]), x.item, x, y)
        return self.record(out, [x, y], [x, y])

    def quantized_matmul(self, x: Tensor, weight: Tensor, base: Format) -> Tensor:
        """Return the product with a weight that each pass computes from its codes; nothing of x is saved.

        See launch/adapters/quantized_layers.py.
        """
        scratch = base.scratch(weight.elements, weight.item)
        shape = (*x.shape[:-1], weight.shape[-1])
        if base.algo == "llm.int8":
            self._rounded_product(x, weight)
            out = self.new(shape, x.item)
        else:
            self.memory.take(scratch)
            values = self.memory.take(weight.nbytes)
            out = self.new(shape, x.item)
            self.memory.alive(values)
        return self.record(out, [x], temporary=max(scratch - x.nbytes, weight.nbytes))

    def quantized_columns(self, x: Tensor, weight: Tensor, base: Format, of_gradient: bool = False) -> Tensor:
        """Return the product with an output layer of which each pass computes some columns at a time from their codes.

        of_gradient: The gradient of the inputs instead, from the logits' gradient x.
        """
        hidden, vocabulary = weight.shape
        columns = min(columns_of_part(hidden), vocabulary)
        part = hidden * columns
        scratch, rows = base.scratch(part, weight.item), x.elements // x.shape[-1]
        products = self.new((rows, hidden) if of_gradient else (rows, vocabulary), FLOAT32 if of_gradient else x.item)
        self.memory.take(scratch)
        read = self.memory.take(part * weight.item + (rows * columns * x.item if of_gradient else 0))
        self.memory.take(rows * (hidden if of_gradient else columns) * x.item)
        self.memory.alive(read)
        out = self.new((*x.shape[:-1], hidden if of_gradient else vocabulary), x.item)
        self.alive(products)
        return self.record(out, [x], temporary=scratch + out.nbytes)

    def _rounded_product(self, x: Tensor, weight: Tensor) -> None:
        """Take the memory of LLM.int8 (launch/adapters/quantization.py).

        Inputs and codes are whole numbers in float32, and so is their product.
        """
        rows, codes = FLOAT32 * x.elements, FLOAT32 * weight.elements
        result = rows // x.shape[-1] * weight.shape[-1]
        values = 0 if x.item == FLOAT32 else rows
        self.memory.take(values + rows + max(2 * codes, codes + result, 2 * result))

    # ---- arithmetic

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum."""
        larger, index = (x, 0) if x.elements >= y.elements else (y, 1)
        out = self._result(larger.shape, max(x.item, y.item), x, y)
        return self.record(out, [x, y], alias=index)

    def add_in_place(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x after x += y."""
        out = Tensor(x.shape, x.item, x.storage, slot=x.slot)
        return self.record(out, [x, y], alias=0)

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the product, element by element."""
        larger, smaller = (x, y) if x.elements >= y.elements else (y, x)
        out = self._result(larger.shape, max(x.item, y.item), x, y)
        by_column = smaller.elements < larger.elements and smaller.shape[-1] == 1
        # The gradient of a column is summed from one of full size.
        temporary = out.nbytes if by_column and smaller.node is not None else 0
        return self.record(out, [x, y], [x, y], temporary=temporary)

    def scale(self, x: Tensor) -> Tensor:
        """Return x times or plus a number."""
        return self._elementwise(x)

    def cast(self, x: Tensor, item: int) -> Tensor:
        """Return x in another dtype."""
        return x if x.item == item else self._elementwise(x, item=item)

    def power(self, x: Tensor) -> Tensor:
        """Return a power of x."""
        return self._elementwise(x, saved=[x], alias=0)

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over the last axis."""
        return self._elementwise(x, shape=(*x.shape[:-1], 1))

    def rsqrt(self, x: Tensor) -> Tensor:
        """Return 1 / sqrt(x)."""
        out = self._elementwise(x, alias=0)
        return self._save_output(out)

    def tanh(self, x: Tensor) -> Tensor:
        """Return the hyperbolic tangent of x."""
        return self._save_output(self._elementwise(x, alias=0))

    def sigmoid(self, x: Tensor) -> Tensor:
        """Return the sigmoid of x."""
        return self._save_output(self._elementwise(x, alias=0))

    def relu(self, x: Tensor) -> Tensor:
        """Return x where it is above 0, else 0."""
        return self._save_output(self._elementwise(x, alias=0))

    def gelu(self, x: Tensor) -> Tensor:
        """Return the GELU of x."""
        return self._elementwise(x, saved=[x])

    def silu(self, x: Tensor) -> Tensor:
        """Return the SiLU of x."""
        return self._save_output(self._elementwise(x, saved=[x], alias=0))

    def swiglu(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return silu(x) y, or of the halves of x."""
        if y is None:
            return self._elementwise(x, shape=(*x.shape[:-1], x.shape[-1] // 2), saved=[x])
        out = self.new(x.shape, x.item)
        return self.record(out, [x, y], [x, y])

    def softmax(self, x: Tensor) -> Tensor:
        """Return the softmax over the last axis."""
        return self._save_output(self._elementwise(x))

    def dropout(self, x: Tensor, probability: float) -> Tensor:
        """Return x with dropout, which saves a mask of one byte an element."""
        if not probability:
            return x
        out = self._elementwise(x)
        mask = self.memory.take(x.elements)
        self.alive(x, out)
        if out.node:
            out.node.saved.append(mask)
        return out

    def _save_output(self, out: Tensor) -> Tensor:
        self.keep(out, out)
        return out

    def keep(self, out: Tensor, x: Tensor) -> None:
        """Let the operator of an output save x, too."""
        if out.node and x.storage:
            out.node.saved.append(x.storage)

    # ---- shapes

    def reshape(self, x: Tensor, shape: Iterable[int]) -> Tensor:
        """Return a view; of a view out of order, a copy."""
        if x.strided:
            return self.record(self.new(shape, x.item), [x], alias=0)
        out = Tensor(shape, x.item, x.storage)
        return self.record(out, [x], alias=0)

    def transpose(self, x: Tensor, order: Iterable[int]) -> Tensor:
        """Return a view whose elements are not in order.

        Its gradient is such a view, too: the node before copies it.
        """
        out = Tensor([x.shape[axis] for axis in order], x.item, x.storage, strided=True)
        if x.node is not None:
            x.node.takes_strided(x)
        return self.record(out, [x], alias=0)

    def slice(self, x: Tensor, shape: Iterable[int]) -> Tensor:
        """Return a part, as a view; its gradient is as large as x."""
        return self.record(Tensor(shape, x.item, x.storage, strided=True), [x])

    def split(self, x: Tensor, parts: int) -> list[Tensor]:
        """Return equal parts of the last axis, as copies."""
        return self.split_at(x, [x.shape[-1] // parts] * parts)

    def split_at(
        self, x: Tensor, widths: Sequence[int], axis: int = -1, copies: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Return parts along an axis, as copies. copies: how many equal ones each stands for."""
        in_order = self._copies(x)
        shapes = [list(x.shape) for _ in widths]
        for shape, width in zip(shapes, widths, strict=True):
            shape[axis] = width
        outs = []
        for shape, times in zip(shapes, copies or [1] * len(widths), strict=True):
            with self.memory.standing_for(times):
                outs.append(self.new(shape, x.item))
        self.memory.alive(*in_order)
        self.record(outs[0], [x])
        self.alive(*outs)
        for slot, out in enumerate(outs):
            out.node, out.slot = outs[0].node, slot
        return outs

    def gather(self, x: Tensor, rows: int) -> Tensor:
        """Return `rows` rows of x in another order, and save their numbers."""
        order = self.new((rows,), 8)
        return self.record(self.new((rows, *x.shape[1:]), x.item), [x], [order])

    def concat(self, xs: list[Tensor], axis: int = -1, copies: Sequence[int] | None = None) -> Tensor:
        """Return the tensors as one. copies: how many equal ones each stands for."""
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] * times for x, times in zip(xs, copies or [1] * len(xs), strict=True))
        return self.record(self._result(shape, xs[0].item, *xs), xs)

    def tile(self, x: Tensor, shape: Iterable[int]) -> Tensor:
        """Return x repeated to a shape."""
        return self._elementwise(x, shape=shape)

    # ---- layers

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return LayerNorm of x.

        It saves mean and variance of each row; backward needs two tensors of the size of x.
        """
        out = self.new(x.shape, x.item)
        rows = x.elements // x.shape[-1]
        statistics = [self.new((rows,), FLOAT32), self.new((rows,), FLOAT32)]
        return self.record(out, [x, weight, bias], [x, *statistics], temporary=2 * x.nbytes)

    def embedding(self, ids: Tensor, table: Tensor) -> Tensor:
        """Return rows of a table."""
        out = self.new((*ids.shape, table.shape[-1]), table.item)
        return self.record(out, [table], [ids])

    def flash_attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Return flash attention of [batch, length, heads, head size] each.

        Saves inputs, output and the log of each row's sum.

        Backward has a float32 gradient of the queries (flash_attn_grad's dq_accum) beside the results.
        """
        out = self.new(query.shape, query.item)
        batch, length, heads, _ = query.shape
        rows = self.new((batch, heads, length), FLOAT32)
        saved = [query, key, value, out, rows, *([mask] if mask else [])]
        return self.record(out, [query, key, value], saved, temporary=FLOAT32 * query.elements)

    def fused_rope(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys rotated, of [batch, length, heads, head size] each.

        It saves cosines and sines of the sequence, in the dtype of both.
        """
        _, length, _, size = query.shape
        tables = [self.new((1, length, 1, size), query.item) for _ in range(2 if query.item != FLOAT32 else 0)]
        turned, other = self.new(query.shape, query.item), self.new(key.shape, key.item)
        self.record(turned, [query, key], tables)
        self.alive(query, key, other)
        other.node, other.slot = turned.node, 1
        return turned, other

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the fused RMSNorm, which saves its input and a float32 for each row."""
        out = self.new(x.shape, x.item)
        rows = self.new((x.elements // x.shape[-1],), FLOAT32)
        return self.record(out, [x, weight], [x, rows])

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the entropy of each row. It saves the softmax, in whose place the gradient is written."""
        copies = self._copies(logits)
        softmax = self.new(logits.shape, logits.item)
        out = self.new((*logits.shape[:-1], 1), logits.item)
        self.memory.alive(*copies)
        self.record(out, [logits], [softmax, labels])
        if out.node:
            out.node.reused = softmax.storage
        return out

    def parallel_cross_entropy(self, logits: Tensor, labels: Tensor, fused: bool) -> Tensor:
        """Return the entropy of this rank's part of the vocabulary.

        fused: the GPU's operator; else launch/rehearsal's, of several, whose backward also gets a gradient of zeros for
        the softmax.
        """
        if fused:
            return self.cross_entropy(logits, labels)
        shifted = self.new(logits.shape, logits.item)
        exponentials = self.new(logits.shape, logits.item)
        softmax = self.new(logits.shape, logits.item)
        self.alive(shifted, exponentials)
        out = self.new((*logits.shape[:-1], 1), logits.item)
        return self.record(out, [logits], [softmax, labels], temporary=3 * logits.nbytes)

    def chunked_entropy(
        self,
        x: Tensor,
        weight: Tensor,
        transposed: bool,
        chunk: int,
        entropy: Callable[[Tensor], Tensor],
        weighed: bool = False,
        base: Format | None = None,
    ) -> Tensor:
        """Return the entropy of each token by the product of x with an output layer, over chunks of tokens.

        See launch/training/chunked_loss.py. Chunks are alike: one is replayed. Their gradients are there after the
        forward pass or, where tokens weigh differently, computed with the logits once more in the backward pass.

        entropy: of the logits of a chunk. base: the format of a quantized output layer.
        """
        losses = self.new((*x.shape[:-1], 1), FLOAT32)
        trained = [one for one in (x, weight) if self.memory.recording and one.node]

        def replayed() -> list[Tensor | None]:
            """Return a chunk's entropy; the gradients of x and weight, None for tensors without one."""
            hidden = self.new(x.shape, x.item) if x in trained else None
            of_weight = self.new(weight.shape, FLOAT32) if weight in trained else None
            self._chunk(x, weight, transposed, chunk, entropy, hidden, of_weight, base)
            return [hidden, of_weight]

        def gradients() -> list[Storage]:
            made = replayed()
            self.alive(x, *made)
            pairs = zip((x, weight), made, strict=True)
            found = [(one, result) for one, result in pairs if result is not None]
            return [
                result.storage if result.storage and result.item == one.item else self.memory.take(one.nbytes)
                for one, result in found
            ]

        inputs = [(one.node, one.slot, one.nbytes) for one in (x, weight) if one.node]
        if weighed or not trained:
            self._chunk(x, weight, transposed, chunk, entropy, None, None, base)
            self.alive(losses, x)
            if trained:
                deferred = Deferred(self.memory, inputs, [x.storage] if x.storage else [])
                deferred.function = gradients
                losses.node = deferred
            return losses
        made = replayed()
        self.alive(losses, *made, x)
        node = Computed(self.memory, inputs)
        node.results = [
            result.storage if result.item == one.item else None
            for one, result in zip((x, weight), made, strict=True)
            if result is not None
        ]
        node.saved = [result.storage for result in made if result and result.storage]
        losses.node = node
        return losses

    def entropy_by_rows(
        self,
        x: Tensor,
        weight: Tensor,
        chunk: int,
        entropy: Callable[[Tensor], Tensor],
        rows: int,
        update_bytes: int,
    ) -> Tensor:
        """Return what chunked_entropy returns, where the weight is updated some rows at a time in the backward pass.

        The gradients of the logits are kept until then, the weight's is never whole.

        rows: That are updated at a time. update_bytes: What this takes.
        """
        losses = self.new((*x.shape[:-1], 1), FLOAT32)
        tokens, columns = prod(x.shape[:-1]), weight.shape[1]
        hidden, kept = self.new(x.shape, x.item), self.new((tokens, columns), x.item)
        self._chunk(x, weight, False, chunk, entropy, hidden, None)
        node = Deferred(self.memory, [(x.node, x.slot, x.nbytes)] if x.node else [])
        node.saved = [one.storage for one in (hidden, kept, x) if one.storage]

        def update() -> list[Storage]:
            wide = self.memory.take(FLOAT32 * rows * columns)
            self.memory.take((tokens + (columns if x.item < FLOAT32 else 0)) * rows * x.item)
            self.memory.take(update_bytes, "moments")
            self.alive(hidden, kept, x)
            self.memory.alive(wide)
            return [hidden.storage] if hidden.storage and x.node else []

        node.function = update
        self.alive(losses, x)
        losses.node = node
        return losses

    def _chunk(
        self,
        x: Tensor,
        weight: Tensor,
        transposed: bool,
        chunk: int,
        entropy: Callable[[Tensor], Tensor],
        hidden_gradient: Tensor | None,
        weight_gradient: Tensor | None,
        base: Format | None = None,
    ) -> None:
        """Compute logits and losses of a chunk, and add to the existing gradients."""
        trained = hidden_gradient is not None or weight_gradient is not None
        inputs = self.new((chunk, x.shape[-1]), x.item)
        with self.memory.without_gradients():
            logits = (
                self.quantized_columns(inputs, weight, base)
                if base
                else self.matmul(inputs, weight, transpose_y=transposed)
            )
            logits = self.cast(logits, FLOAT32)
        leaf = Leaf(self.memory, "logits", logits.shape, logits.elements)
        logits.node = leaf if trained else None
        entropies = entropy(logits)
        if trained:
            backward(entropies)
            assert isinstance(leaf.gradient, Storage)
            gradient = Tensor(logits.shape, FLOAT32, leaf.gradient)
            self._chunk_products(inputs, weight, gradient, transposed, hidden_gradient, weight_gradient, base)

    def _chunk_products(
        self,
        inputs: Tensor,
        weight: Tensor,
        gradient: Tensor,
        transposed: bool,
        hidden_gradient: Tensor | None,
        weight_gradient: Tensor | None,
        base: Format | None = None,
    ) -> None:
        """Compute the products with the gradient of a chunk's logits."""
        with self.memory.without_gradients():
            narrow = self.cast(gradient, inputs.item)
            if base:
                self.quantized_columns(narrow, weight, base, of_gradient=True)
            elif hidden_gradient is not None:
                self.matmul(narrow, weight, transpose_y=not transposed)
            if weight_gradient is not None and weight.item == FLOAT32:
                self.memory.take(narrow.nbytes if transposed else inputs.nbytes)  # a transposed copy
            elif weight_gradient is not None:
                piece = (FLOAT32 + weight.item) * weight.elements
                self.memory.take(min(PRODUCT_BYTES, piece) + (narrow if transposed else inputs).nbytes)
            self.alive(narrow, inputs)

"""The layers of a mixture of experts, for the plan: launch/models/expert_mixing.py, operator by operator.

Every token goes to k experts, so all experts together compute k rows a token, and the memory of what they keep is the
same however the tokens are spread. The plan gives each expert equally many.
"""

from launch.families.forward import FLOAT32
from launch.families.gated_decoder import GatedDecoder
from launch.tape.autograd import Tensor


class SparseDecoder(GatedDecoder):
    """A decoder whose MLPs are experts. experts: of a layer. chosen: of a token."""

    experts: int
    chosen: int

    def expert(self, name: str, x: Tensor) -> Tensor:
        """What the expert of this name makes of its rows."""
        raise NotImplementedError

    def route(self, name: str, x: Tensor, normalized: bool) -> Tensor:
        """[tokens, chosen]: the weights of each token's experts. x: [tokens, hidden]. name: of the router."""
        ops = self.ops
        logits = self.product(name, x)
        shares = ops.softmax(ops.cast(logits, FLOAT32))
        weights = ops.record(ops.new((x.shape[0], self.chosen), FLOAT32), [shares], [ops.new((*x.shape[:1], 1), 8)])
        if normalized:
            weights = ops.multiply(weights, ops.mean(weights))
        out = ops.cast(weights, x.item)
        self.alive(logits)
        return out

    def mix(self, name: str, x: Tensor, weights: Tensor) -> Tensor:
        """x: [tokens, hidden]. name: before the number of an expert."""
        ops, (tokens, hidden) = self.ops, x.shape
        rows = tokens * self.chosen
        copies = ops.reshape(ops.tile(x, (tokens, self.chosen, hidden)), (rows, hidden))
        each, more = divmod(rows, self.experts)
        sizes = [each + (1 if expert < more else 0) for expert in range(self.experts)]
        parts = ops.split_at(ops.gather(copies, rows), sizes, axis=0)
        outputs = [self.expert(f"{name}.{number}", part) for number, part in enumerate(parts)]
        joined = ops.gather(ops.concat(outputs, axis=0), rows)
        self.alive(*parts)
        joined = ops.reshape(joined, (tokens, self.chosen, hidden))
        out = ops.matmul(ops.reshape(weights, (tokens, 1, self.chosen)), joined)
        return ops.reshape(out, x.shape)

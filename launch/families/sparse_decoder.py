"""The layers of a mixture of experts, for the plan: launch/models/expert_mixing.py, operator by operator.

Every token goes to k experts, so all experts together compute k rows a token, and the memory of what they keep is the
same however the tokens are spread. The plan gives each expert equally many.
"""

import re
from itertools import groupby

from launch.families.forward import FLOAT32
from launch.families.gated_decoder import GatedDecoder
from launch.tape.autograd import Leaf, Tensor

EXPERT = re.compile(r".*\.experts\.\d+")


class SparseDecoder(GatedDecoder):
    """A decoder whose MLPs are experts.

    Attributes:
        experts: Of a layer.
        chosen: Of a token.
        normalizes: Whether the weights of a token's experts are divided by their sum, without `norm_topk_prob`.
    """

    normalizes = False
    slices_sequence = shares_samples = False

    def __init__(self, job, memory, weights):
        super().__init__(job, memory, weights)
        self.experts = job.config.get("num_experts") or job.config["num_local_experts"]
        self.chosen = job.config["num_experts_per_tok"]
        leaves = [one.node for one in weights.values() if isinstance(one.node, Leaf) and one.node.awaited]
        self.awaited = {found[0] for leaf in leaves if (found := EXPERT.match(leaf.name))}

    def mlp(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the experts."""
        rows = self.ops.reshape(x, (self.batch * self.length, self.hidden))
        out = self.shared(name, rows, self.mix(f"{name}.experts", rows, self.route(f"{name}.gate", rows)))
        self.alive(x)
        return self.ops.reshape(out, x.shape)

    def shared(self, name: str, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the mix, with the output of an expert for all tokens where there is one."""
        return mixed

    def expert(self, name: str, x: Tensor) -> Tensor:
        """Return the output of the expert of this name for its rows."""
        return super().mlp(name, x)

    def route(self, name: str, x: Tensor) -> Tensor:
        """Return the weights of each token's experts, [tokens, chosen]. x: [tokens, hidden]. name: of the router."""
        ops = self.ops
        logits = self.router_logits(name, x)
        shares = ops.softmax(ops.cast(logits, FLOAT32))
        weights = ops.record(ops.new((x.shape[0], self.chosen), FLOAT32), [shares], [ops.new((*x.shape[:1], 1), 8)])
        if self.job.config.get("norm_topk_prob", self.normalizes):
            weights = ops.multiply(weights, ops.mean(weights))
        out = ops.cast(weights, x.item)
        self.alive(logits)
        return out

    def router_logits(self, name: str, x: Tensor) -> Tensor:
        """Return the logits of the router, [tokens, experts]."""
        return self.product(name, x)

    def mix(self, name: str, x: Tensor, weights: Tensor) -> Tensor:
        """Return the mix of the experts' outputs. x: [tokens, hidden]. name: the prefix of an expert's number."""
        ops, (tokens, hidden) = self.ops, x.shape
        rows = tokens * self.chosen
        copies = ops.reshape(ops.tile(x, (tokens, self.chosen, hidden)), (rows, hidden))
        each, more = divmod(rows, self.experts)
        sizes = [each + (1 if expert < more else 0) for expert in range(self.experts)]
        numbers, times = self._replayed(name, sizes)
        parts = ops.split_at(ops.gather(copies, rows), [sizes[number] for number in numbers], axis=0, copies=times)
        outputs = []
        for number, part, count in zip(numbers, parts, times, strict=True):
            with self.memory.standing_for(count):
                outputs.append(self.expert(f"{name}.{number}", part))
        joined = ops.gather(ops.concat(outputs, axis=0, copies=times), rows)
        self.alive(*parts)
        joined = ops.reshape(joined, (tokens, self.chosen, hidden))
        out = ops.matmul(ops.reshape(weights, (tokens, 1, self.chosen)), joined)
        return ops.reshape(out, x.shape)

    def _replayed(self, name: str, sizes: list[int]) -> tuple[list[int], list[int]]:
        """Return the numbers of the replayed experts, and how many each stands for. sizes: rows of each.

        Of equal ones in a row the first, the second for all between, and the last (launch/tape/autograd.py). Under
        stage 2 experts whose gradients have their place in a buffer are not equal.
        """
        numbers: list[int] = []
        times: list[int] = []
        kinds = [(size, f"{name}.{number}" in self.awaited) for number, size in enumerate(sizes)]
        for (_, awaited), run in groupby(range(len(sizes)), key=lambda number: kinds[number]):
            equal = list(run)
            if awaited or len(equal) <= 3:
                numbers += equal
                times += [1] * len(equal)
            else:
                numbers += [equal[0], equal[1], equal[-1]]
                times += [1, len(equal) - 2, 1]
        return numbers, times

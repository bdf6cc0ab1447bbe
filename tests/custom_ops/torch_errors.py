"""How far torch's rms_norm is from float64, on the numbers of op_ranks.errors in float32: y, and both gradients.

python -m tests.custom_ops.torch_errors ROWS HIDDEN
"""

import json
import sys

import numpy as np
import torch

from tests.custom_ops.kernels import reference_backward, reference_forward

EPSILON = 1e-6


def main(rows: int, hidden: int) -> None:
    numbers = np.random.default_rng(hidden)
    sizes = ((0, 3, (rows, hidden)), (1, 0.1, hidden), (0, 1, (rows, hidden)))
    x, weight, y_grad = (torch.tensor(numbers.normal(*size).astype("float32")) for size in sizes)
    x.requires_grad = weight.requires_grad = True
    y = torch.nn.functional.rms_norm(x, (hidden,), weight, EPSILON)
    tensors = [y, *torch.autograd.grad(y, [x, weight], grad_outputs=y_grad)]
    exact = [tensor.detach().numpy().astype("float64") for tensor in (x, weight, y_grad)]
    right = [reference_forward(*exact[:2], EPSILON)[0], *reference_backward(exact[2], *exact[:2], EPSILON)]
    errors = [
        float(np.abs(tensor.detach().numpy() - correct).max() / np.abs(correct).max())
        for tensor, correct in zip(tensors, right, strict=True)
    ]
    print(json.dumps(errors))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

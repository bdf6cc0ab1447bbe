"""Matrix products in bfloat16 on a CPU: --bf16 1 and --dtype bfloat16, by the operators of `make custom-ops` (oneDNN).

Linear layers (LoRA's too) and the output layer of a model round their factors to bfloat16 and sum in float32, forward
and backward, and so does the compiled causal attention with AVX512-bf16. All else is as without: weights, gradients and
optimizer states are float32, as are norms, softmax and loss. LoRA's own two products are narrow, and stay float32 as
well.
"""

from collections.abc import Callable
from functools import cached_property, partial
from types import FunctionType, MethodType, ModuleType, SimpleNamespace

import paddle
from paddle.autograd import PyLayer
from paddlenlp.peft.lora.lora_layers import LoRALinear

HEADS = frozenset({"LlamaLMHead", "Qwen2LMHead", "MistralLMHead"})  # they call `parallel_matmul` of their module


class BFloat16Products:
    """The products of a run's models. Layers that read the same tensor, as q, k and v do, share its rounded copy.

    Attributes:
        compiled: The module fused_ln.cpu.
    """

    def __init__(self, compiled: ModuleType):
        self.compiled = compiled
        self._last: tuple = (None, 0, None)

    def linear(self, x, weight, bias=None, name=None, transposed: bool = False):
        """Return x [..., k] @ weight [k, n], transposed [n, k], + bias [n]: F.linear; other dtypes are stock's."""
        if x.dtype != paddle.float32 or weight.dtype != paddle.float32:
            return paddle.nn.functional.linear(x, weight.t() if transposed else weight, bias)
        return RoundedProduct.apply(x, weight, bias, self._rounded(x), transposed, self.compiled)

    def _rounded(self, x) -> paddle.Tensor:
        last, version, rounded = self._last
        if x is not last or x.inplace_version != version:
            rounded = self.compiled.bfloat16(x.detach())
            self._last = (x, x.inplace_version, rounded)
        return rounded

    def replace_head(self, model: paddle.nn.Layer) -> bool:
        """Give the output layer of a model its products in bfloat16; False: not known here, or sharded over ranks."""
        for layer in model.sublayers():
            kind = type(layer)
            if kind.__name__ in HEADS and not layer.weight.is_distributed:
                forward = rebuilt(kind.forward, parallel_matmul=self._parallel_matmul)
                layer.__class__ = type(f"BFloat16{kind.__name__}", (kind,), {"forward": forward})
                layer.products_class = partial(PackedProducts, self.compiled)
                return True
        return False

    def _parallel_matmul(self, x, weight, transpose_y: bool = False, tensor_parallel_output: bool = True):
        return self.linear(x, weight, transposed=transpose_y)

    def replace_linears(self, model: paddle.nn.Layer) -> str:
        """Give the linear layers of a model, those with LoRA too, products in bfloat16; return a line about it."""
        replaced = 0
        functions = SimpleNamespace(linear=self.linear)
        for layer in model.sublayers():
            if type(layer) is LoRALinear:
                layer.forward = MethodType(rebuilt(LoRALinear.forward, F=functions), layer)
            elif type(layer) is paddle.nn.Linear:
                layer.forward = MethodType(self._linear, layer)
            else:
                continue
            replaced += 1
        heads = sum("products_class" in vars(layer) for layer in model.sublayers())
        return f"bfloat16: products of {replaced} linear layers and {heads} output layer, by oneDNN"

    def _linear(self, layer: paddle.nn.Linear, x):
        return self.linear(x, layer.weight, layer.bias)


class RoundedProduct(PyLayer):
    """x @ weight + bias, of factors rounded to bfloat16. `rounded` is x, and what is saved for the backward pass."""

    @staticmethod
    def forward(ctx, x, weight, bias, rounded, transposed: bool, compiled: ModuleType):
        """Compute the product."""
        ctx.save_for_backward(rounded, weight)
        ctx.has_bias = bias is not None
        ctx.trained = [tensor is not None and not tensor.stop_gradient for tensor in (x, weight, bias)]
        ctx.transposed, ctx.compiled = transposed, compiled
        return compiled.product(rounded, weight, bias, False, transposed)

    @staticmethod
    def backward(ctx, grad):
        """Compute the gradients of x, weight and bias."""
        x, weight = ctx.saved_tensor()
        product, factor = ctx.compiled.product, ctx.compiled.bfloat16(grad)
        x_grad = weight_grad = bias_grad = None
        if ctx.trained[0]:
            x_grad = product(factor, weight, None, False, not ctx.transposed)
        if ctx.trained[1]:
            weight_grad = product(*((factor, x) if ctx.transposed else (x, factor)), None, True, False)
        if ctx.trained[2]:
            bias_grad = grad.reshape([-1, grad.shape[-1]]).sum(0)
        return (x_grad, weight_grad, bias_grad, None) if ctx.has_bias else (x_grad, weight_grad, None)


class PackedProducts:
    """WeightProducts of launch/training/chunked_loss.py: a weight is rounded once for all chunks of a batch."""

    def __init__(self, compiled: ModuleType, weight: paddle.Tensor, transposed: bool):
        self.compiled, self.weight, self.transposed = compiled, weight, transposed

    @cached_property
    def _forward(self) -> paddle.Tensor:
        return self.compiled.pack(self.weight, self.transposed)

    @cached_property
    def _backward(self) -> paddle.Tensor:
        return self.compiled.pack(self.weight, not self.transposed)

    def logits(self, inputs: paddle.Tensor, bias: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the logits of inputs [tokens, hidden], or what another layer with a weight and a bias computes."""
        return self.compiled.packed_product(inputs, self._forward, self.weight.shape[not self.transposed], bias)

    def hidden(self, gradient: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the inputs. gradient: of the logits."""
        return self.compiled.packed_product(gradient, self._backward, self.weight.shape[self.transposed])

    def add(self, total: paddle.Tensor, left: paddle.Tensor, right: paddle.Tensor) -> None:
        """Add the product of left, transposed, with right to a float32 total."""
        total.add_(self.compiled.product(left, self.compiled.bfloat16(right), None, True, False))


def answer_in_bfloat16(model: paddle.nn.Layer, compiled: ModuleType) -> None:
    """Let a model that answers read its linear and output layers' weights in bfloat16, rounded when first used.

    Quantized ones (launch/adapters/quantized_layers.py) stay as they are.
    """
    for layer in model.sublayers():
        kind = type(layer)
        if kind in (paddle.nn.Linear, LoRALinear) and not hasattr(layer.weight, "packed"):
            products = PackedProducts(compiled, layer.weight, False)
            functions = SimpleNamespace(linear=partial(_linear, products))
            layer.forward = MethodType(rebuilt(kind.forward, F=functions), layer)
        elif kind.__name__ in HEADS and not layer.weight.is_distributed:
            products = PackedProducts(compiled, layer.weight, getattr(layer, "transpose_y", False))
            layer.forward = MethodType(rebuilt(kind.forward, parallel_matmul=partial(_linear, products)), layer)


def _linear(products: PackedProducts, x, weight=None, bias=None, **_):
    return products.logits(x, bias)


def rebuilt(function: Callable, **names) -> FunctionType:
    """Return a copy of a function that sees other objects under these names of its module."""
    assert isinstance(function, FunctionType)
    seen = {**function.__globals__, **names}
    return FunctionType(function.__code__, seen, function.__name__, function.__defaults__, function.__closure__)

// The operator fused_rms_norm for Paddle: takes tensors apart, calls the kernels, registers the gradient.
// Not paddle/extension.h: it adds Python and the graph passes, six seconds, and in CUDA builds the headers of cuDNN,
// cuBLAS and others, which are not part of the CUDA toolkit.
#include "paddle/phi/api/all.h"
#include "fresh_memory.h"
#include "rms_norm_cpu.h"
#ifdef FUSED_LN_WITH_CUDA
#include "rms_norm_cuda.h"
#endif

namespace {

using paddle::DataType;
using paddle::Tensor;

struct Shape {
  int64_t rows, hidden;
};

// The last axis is what is normalised, all others are rows.
Shape shape_of(const Tensor& x, const Tensor& weight) {
  const int64_t hidden = weight.numel();
  return {hidden == 0 ? 0 : x.numel() / hidden, hidden};
}

// Calls body(x, weight), each a null pointer that tells the type, for the dtypes of these tensors.
template <class Body>
void of_dtypes(DataType x, DataType weight, Body body) {
  using rms_norm::BFloat16;
  using rms_norm::Float16;
  const auto pair = std::make_pair(x, weight);
  if (pair == std::make_pair(DataType::FLOAT32, DataType::FLOAT32)) return body((float*)nullptr, (float*)nullptr);
  if (pair == std::make_pair(DataType::BFLOAT16, DataType::BFLOAT16)) return body((BFloat16*)nullptr, (BFloat16*)nullptr);
  if (pair == std::make_pair(DataType::BFLOAT16, DataType::FLOAT32)) return body((BFloat16*)nullptr, (float*)nullptr);
  if (pair == std::make_pair(DataType::FLOAT16, DataType::FLOAT16)) return body((Float16*)nullptr, (Float16*)nullptr);
  if (pair == std::make_pair(DataType::FLOAT16, DataType::FLOAT32)) return body((Float16*)nullptr, (float*)nullptr);
  PD_THROW("fused_rms_norm: no kernel for x ", x, " with weight ", weight);
}

std::vector<Tensor> Forward(const Tensor& x, const Tensor& weight, float epsilon) {
  PD_CHECK(weight.place() == x.place(), "fused_rms_norm: x is on ", x.place(), ", the weight on ", weight.place());
  const auto [rows, hidden] = shape_of(x, weight);
  auto row_shape = x.shape();
  row_shape.pop_back();
  Tensor y = paddle::empty(x.shape(), weight.dtype(), x.place());
  Tensor inverse_rms = paddle::empty(row_shape, DataType::FLOAT32, x.place());
  of_dtypes(x.dtype(), weight.dtype(), [&](auto* x_type, auto* weight_type) {
    using X = std::remove_pointer_t<decltype(x_type)>;
    using W = std::remove_pointer_t<decltype(weight_type)>;
    const rms_norm::Forward<X, W> call{(const X*)x.data(), (const W*)weight.data(), (W*)y.data(),
                                       inverse_rms.data<float>(), rows, hidden, epsilon};
#ifdef FUSED_LN_WITH_CUDA
    if (x.is_gpu()) return rms_norm::cuda::forward(call, x.stream());
#endif
    PD_CHECK(x.is_cpu(), "fused_rms_norm: built without CUDA; build it where nvcc is found");
    rms_norm::show_malloc_large_blocks();
    rms_norm::advise_huge_pages(call.y, rows * hidden * static_cast<int64_t>(sizeof(W)));
    rms_norm::forward(call);
  });
  return {y, inverse_rms};
}

std::vector<Tensor> Backward(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms, const Tensor& y_grad) {
  // Nothing of the loss depends on y: it was reached through the other output.
  if (!y_grad.initialized()) return {paddle::experimental::zeros_like(x), paddle::experimental::zeros_like(weight)};
  PD_CHECK(y_grad.dtype() == weight.dtype(), "fused_rms_norm: the gradient is ", y_grad.dtype(), ", the weight ",
           weight.dtype());
  const auto [rows, hidden] = shape_of(x, weight);
  Tensor x_grad = paddle::empty_like(x), weight_grad = paddle::empty_like(weight);
  of_dtypes(x.dtype(), weight.dtype(), [&](auto* x_type, auto* weight_type) {
    using X = std::remove_pointer_t<decltype(x_type)>;
    using W = std::remove_pointer_t<decltype(weight_type)>;
    const rms_norm::Backward<X, W> call{(const W*)y_grad.data(), (const X*)x.data(), (const W*)weight.data(),
                                        inverse_rms.data<float>(), (X*)x_grad.data(), (W*)weight_grad.data(), rows,
                                        hidden};
#ifdef FUSED_LN_WITH_CUDA
    if (x.is_gpu()) {
      const int64_t numbers = rms_norm::cuda::workspace_numbers(call);
      Tensor workspace = paddle::empty({numbers}, DataType::FLOAT32, x.place());
      return rms_norm::cuda::backward(call, workspace.data<float>(), x.stream());
    }
#endif
    rms_norm::advise_huge_pages(call.x_grad, rows * hidden * static_cast<int64_t>(sizeof(X)));
    rms_norm::backward(call);
  });
  return {x_grad, weight_grad};
}

using Dims = std::vector<int64_t>;

std::vector<Dims> ForwardShapes(Dims x, Dims weight, float epsilon) {
  Dims rows = x;
  rows.pop_back();
  return {x, rows};
}

std::vector<DataType> ForwardDtypes(DataType x, DataType weight) { return {weight, DataType::FLOAT32}; }

std::vector<Dims> BackwardShapes(Dims x, Dims weight, Dims inverse_rms, Dims y_grad) { return {x, weight}; }

std::vector<DataType> BackwardDtypes(DataType x, DataType weight, DataType inverse_rms, DataType y_grad) {
  return {x, weight};
}

}  // namespace

PD_BUILD_OP(fused_rms_norm)
    .Inputs({"x", "weight"})
    .Outputs({"y", "inverse_rms"})
    .Attrs({"epsilon: float"})
    .SetKernelFn(PD_KERNEL(Forward))
    .SetInferShapeFn(PD_INFER_SHAPE(ForwardShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(ForwardDtypes));

PD_BUILD_GRAD_OP(fused_rms_norm)
    .Inputs({"x", "weight", "inverse_rms", paddle::Grad("y")})
    .Outputs({paddle::Grad("x"), paddle::Grad("weight")})
    .SetKernelFn(PD_KERNEL(Backward))
    .SetInferShapeFn(PD_INFER_SHAPE(BackwardShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(BackwardDtypes));

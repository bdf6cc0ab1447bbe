// The CUDA kernels for torch, to compare them with torch's own where there is no Paddle. Built by
// benchmarks/rms_norm_gpu.py (torch.utils.cpp_extension.load); x, weight and gradients are of one dtype.
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

#include "../csrc/rms_norm_cuda.h"

using rms_norm::BFloat16;
using rms_norm::Float16;
using torch::Tensor;

namespace {

template <class Body>
void of_dtype(const Tensor& x, Body body) {
  switch (x.scalar_type()) {
    case torch::kFloat32: return body((float*)nullptr);
    case torch::kBFloat16: return body((BFloat16*)nullptr);
    case torch::kFloat16: return body((Float16*)nullptr);
    default: TORCH_CHECK(false, "rms_norm: no kernel for ", x.scalar_type());
  }
}

std::vector<Tensor> forward(Tensor x, Tensor weight, double epsilon) {
  Tensor y = torch::empty_like(x);
  Tensor inverse_rms = torch::empty({x.size(0)}, x.options().dtype(torch::kFloat32));
  of_dtype(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const rms_norm::Forward<T, T> call{(const T*)x.data_ptr(), (const T*)weight.data_ptr(), (T*)y.data_ptr(),
                                       inverse_rms.data_ptr<float>(), x.size(0), x.size(1), epsilon};
    rms_norm::cuda::forward(call, at::cuda::getCurrentCUDAStream().stream());
  });
  return {y, inverse_rms};
}

std::vector<Tensor> backward(Tensor y_grad, Tensor x, Tensor weight, Tensor inverse_rms) {
  Tensor x_grad = torch::empty_like(x), weight_grad = torch::empty_like(weight);
  of_dtype(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const rms_norm::Backward<T, T> call{(const T*)y_grad.data_ptr(), (const T*)x.data_ptr(),
                                        (const T*)weight.data_ptr(), inverse_rms.data_ptr<float>(),
                                        (T*)x_grad.data_ptr(), (T*)weight_grad.data_ptr(), x.size(0), x.size(1)};
    Tensor workspace = torch::empty({rms_norm::cuda::workspace_numbers(call)}, inverse_rms.options());
    rms_norm::cuda::backward(call, workspace.data_ptr<float>(), at::cuda::getCurrentCUDAStream().stream());
  });
  return {x_grad, weight_grad};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("forward", &forward, "y, inverse_rms of x [rows, hidden], weight [hidden], epsilon");
  module.def("backward", &backward, "x_grad, weight_grad of y_grad, x, weight, inverse_rms");
}

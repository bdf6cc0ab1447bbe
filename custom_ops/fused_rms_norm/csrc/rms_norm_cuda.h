// RMSNorm for NVIDIA cards: host functions, for (float, float), (half, half) and (half, float) of either half dtype.
// They start kernels on a cudaStream_t, given as void* so that callers need no CUDA header, and do not wait.
// std::runtime_error where a kernel cannot be started. The weight's gradient is summed in an order that depends on
// nothing but the shape and the card: the same bits every time.
#pragma once

#include "rms_norm.h"

namespace rms_norm {
namespace cuda {

template <class X, class W>
void forward(const Forward<X, W>& call, void* stream);

// Floats of scratch memory that backward needs.
template <class X, class W>
int64_t workspace_numbers(const Backward<X, W>& call);

template <class X, class W>
void backward(const Backward<X, W>& call, float* workspace, void* stream);

}  // namespace cuda
}  // namespace rms_norm

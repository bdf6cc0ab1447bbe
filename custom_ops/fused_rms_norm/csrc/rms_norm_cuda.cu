// Which kernel for which shape, and the dtypes that there are.
#include "rms_norm_cuda.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "rms_norm_cuda.cuh"

namespace rms_norm {
namespace cuda {
namespace {

constexpr int kRereadThreads = 512;
constexpr int kTileThreads = 128;

int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string("rms_norm: ") + what + ": " + cudaGetErrorString(code));
}

int64_t multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

// Numbers of X in 16 bytes where every row begins at a multiple of it; 1 elsewhere.
template <class X>
int pack_of(int64_t hidden, std::initializer_list<const void*> tensors) {
  constexpr int kPack = 16 / sizeof(X);
  bool aligned = hidden % kPack == 0;
  for (const void* tensor : tensors) aligned = aligned && reinterpret_cast<uintptr_t>(tensor) % 16 == 0;
  return aligned ? kPack : 1;
}

template <class X, class W>
void forward_in_packs(const Forward<X, W>& call, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(X);
  const int64_t packs = call.hidden / N;
  const dim3 grid(call.rows);
  if (packs <= 32 * 4) {
    forward_kept<X, W, N, 32, 4><<<dim3(divide_up(call.rows, 4)), dim3(32, 4), 0, stream>>>(call);
  } else if (packs <= 128 * 4) {
    forward_kept<X, W, N, 128, 4><<<grid, 128, 0, stream>>>(call);
  } else if (packs <= 256 * 4) {
    forward_kept<X, W, N, 256, 4><<<grid, 256, 0, stream>>>(call);
  } else if (packs <= 512 * 4) {
    forward_kept<X, W, N, 512, 4><<<grid, 512, 0, stream>>>(call);
  } else if (packs <= 512 * 8) {
    forward_kept<X, W, N, 512, 8><<<grid, 512, 0, stream>>>(call);
  } else {
    forward_reread<X, W, N, kRereadThreads><<<grid, kRereadThreads, 0, stream>>>(call);
  }
}

// Threads that share a row in registers in the backward pass; 0 where rows are too long for that, or odd.
// (512 threads would have 128 registers each, which is not enough without spilling.)
int threads_of_row(int64_t hidden, int pack) {
  if (pack == 1) return 0;
  for (const int threads : {32, 128, 256}) {
    if (hidden / pack <= threads * 4) return threads;
  }
  return 0;
}

// Groups of threads that a backward pass is divided among, each with a sum of its own.
int64_t parts_of(int threads, int64_t rows, int64_t hidden, int pack) {
  if (threads == 0) {
    const int64_t tiles = divide_up(hidden / pack, kTileThreads);
    return std::min(rows, std::max<int64_t>(1, multiprocessors() * 16 / tiles));
  }
  const int64_t groups = multiprocessors() * std::max(1024 / threads, 1);
  return std::min(divide_up(rows, 4) * 4, divide_up(groups, 4) * 4);
}

template <class X, class W>
int backward_pack(const Backward<X, W>& call) {
  return pack_of<X>(call.hidden, {call.x, call.weight, call.y_grad, call.x_grad});
}

template <class X, class W, int N>
void backward_in_tiles(const Backward<X, W>& call, int64_t parts, float* workspace, cudaStream_t stream) {
  float* along_x = workspace + parts * call.hidden;
  backward_dots<X, W, N, kRereadThreads><<<call.rows, kRereadThreads, 0, stream>>>(call, along_x);
  const dim3 tiles(divide_up(call.hidden / N, kTileThreads), parts);
  backward_tiles<X, W, N, kTileThreads><<<tiles, kTileThreads, 0, stream>>>(call, along_x, workspace);
}

template <class X, class W>
void backward_in_packs(const Backward<X, W>& call, int threads, int64_t parts, float* workspace, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(X);
  if (threads == 32) {
    backward_kept<X, W, N, 32, 4><<<dim3(parts / 4), dim3(32, 4), 0, stream>>>(call, workspace);
  } else if (threads == 128) {
    backward_kept<X, W, N, 128, 4><<<parts, 128, 0, stream>>>(call, workspace);
  } else if (threads == 256) {
    backward_kept<X, W, N, 256, 4><<<parts, 256, 0, stream>>>(call, workspace);
  } else {
    backward_in_tiles<X, W, N>(call, parts, workspace, stream);
  }
}

}  // namespace

template <class X, class W>
void forward(const Forward<X, W>& call, void* stream) {
  if (call.rows == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  if (pack_of<X>(call.hidden, {call.x, call.weight, call.y}) == 1) {
    forward_reread<X, W, 1, kRereadThreads><<<call.rows, kRereadThreads, 0, on>>>(call);
  } else {
    forward_in_packs(call, on);
  }
  check(cudaGetLastError(), "forward");
}

template <class X, class W>
int64_t workspace_numbers(const Backward<X, W>& call) {
  const int pack = backward_pack(call);
  return parts_of(threads_of_row(call.hidden, pack), call.rows, call.hidden, pack) * call.hidden + call.rows;
}

template <class X, class W>
void backward(const Backward<X, W>& call, float* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (call.rows == 0) {
    check(cudaMemsetAsync(call.weight_grad, 0, call.hidden * sizeof(W), on), "backward");
    return;
  }
  const int pack = backward_pack(call), threads = threads_of_row(call.hidden, pack);
  const int64_t parts = parts_of(threads, call.rows, call.hidden, pack);
  if (pack == 1) {
    backward_in_tiles<X, W, 1>(call, parts, workspace, on);
  } else {
    backward_in_packs(call, threads, parts, workspace, on);
  }
  sum_parts<<<divide_up(call.hidden, 32), dim3(32, 8), 0, on>>>(workspace, parts, call.hidden, call.weight_grad);
  check(cudaGetLastError(), "backward");
}

#define FOR_DTYPES(X, W)                                          \
  template void forward<X, W>(const Forward<X, W>&, void*);       \
  template int64_t workspace_numbers(const Backward<X, W>& call); \
  template void backward<X, W>(const Backward<X, W>&, float*, void*);
FOR_DTYPES(float, float)
FOR_DTYPES(BFloat16, BFloat16)
FOR_DTYPES(BFloat16, float)
FOR_DTYPES(Float16, Float16)
FOR_DTYPES(Float16, float)

}  // namespace cuda
}  // namespace rms_norm

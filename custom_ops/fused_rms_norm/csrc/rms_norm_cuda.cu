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

// How the registers of threads hold a row: kItems packs for each of kThreads threads.
template <int kThreads_, int kItems_>
struct Kept {
  static constexpr int kThreads = kThreads_, kItems = kItems_, kPacks = kThreads * kItems;
  static dim3 block() { return dim3(kThreads, kRows<kThreads>); }
};

// Calls body with the first of these in which a row of so many packs has room; false where none is long enough.
template <class... Rows, class Body>
bool with_kept(int64_t packs, Body body) {
  bool found = false;
  ((found || packs > Rows::kPacks || (body(Rows()), found = true)), ...);
  return found;
}

template <class X, class W>
void forward_in_packs(const Forward<X, W>& call, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(X);
  const auto kept = [&](auto shape) {
    using Shape = decltype(shape);
    const dim3 grid(divide_up(call.rows, kRows<Shape::kThreads>));
    forward_kept<X, W, N, Shape::kThreads, Shape::kItems><<<grid, Shape::block(), 0, stream>>>(call);
  };
  if (with_kept<Kept<16, 1>, Kept<32, 4>, Kept<128, 4>, Kept<256, 4>, Kept<512, 4>, Kept<512, 8>>(call.hidden / N, kept)) {
    return;
  }
  forward_reread<X, W, N, kRereadThreads><<<dim3(call.rows), kRereadThreads, 0, stream>>>(call);
}

// For the backward pass. 5120 numbers of 16 bits fill 320 threads; 4 packs for each of 512 threads would spill.
template <class Body>
bool with_kept_backward(int64_t hidden, int pack, Body body) {
  if (pack == 1) return false;
  return with_kept<Kept<16, 1>, Kept<32, 2>, Kept<64, 2>, Kept<64, 4>, Kept<128, 4>, Kept<320, 2>, Kept<512, 2>>(
      hidden / pack, body);
}

// Parts of the rows that a backward pass is divided among, each with a sum of its own: as many blocks as the card holds
// at once.
template <class X, class W>
int64_t parts_of(int64_t rows, int64_t hidden, int pack) {
  const int64_t tiles = divide_up(hidden / pack, kTileThreads);
  int64_t parts = std::min(rows, std::max<int64_t>(1, multiprocessors() * 16 / tiles));
  with_kept_backward(hidden, pack, [&](auto shape) {
    using Shape = decltype(shape);
    constexpr int kThreads = Shape::kThreads;
    const auto kernel = backward_kept<X, W, 16 / sizeof(X), kThreads, Shape::kItems>;
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kBlock<kThreads>, 0), "cudaOccupancy");
    parts = std::min(divide_up(rows, kRows<kThreads>), multiprocessors() * std::max(blocks, 1));
  });
  return parts;
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
  return parts_of<X, W>(call.rows, call.hidden, pack) * call.hidden + call.rows;
}

template <class X, class W>
void backward(const Backward<X, W>& call, float* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (call.rows == 0) {
    check(cudaMemsetAsync(call.weight_grad, 0, call.hidden * sizeof(W), on), "backward");
    return;
  }
  constexpr int N = 16 / sizeof(X);
  const int pack = backward_pack(call);
  const int64_t parts = parts_of<X, W>(call.rows, call.hidden, pack);
  const bool kept = with_kept_backward(call.hidden, pack, [&](auto shape) {
    using Shape = decltype(shape);
    backward_kept<X, W, N, Shape::kThreads, Shape::kItems><<<parts, Shape::block(), 0, on>>>(call, workspace);
  });
  if (!kept && pack == 1) {
    backward_in_tiles<X, W, 1>(call, parts, workspace, on);
  } else if (!kept) {
    backward_in_tiles<X, W, N>(call, parts, workspace, on);
  }
  sum_parts<<<divide_up(call.hidden, 32), dim3(32, 32), 0, on>>>(workspace, parts, call.hidden, call.weight_grad);
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

// The CUDA kernels of RMSNorm. No framework, no fast-math.
//
// Up to a size, a row lies in the registers of the threads that share it (half a warp up to a block): it is read from
// memory once, in packs of 16 bytes. Longer rows are read twice, the second time mostly from the L2 cache. In the
// backward pass a block takes many rows and keeps its sum of the weight's gradient in registers; the sums of all blocks
// are added by a last kernel, in their order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "rms_norm.h"

namespace rms_norm {
namespace cuda {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(BFloat16 value) { return __bfloat162float(__ushort_as_bfloat16(value.bits)); }
__device__ inline float to_float(Float16 value) { return __half2float(__ushort_as_half(value.bits)); }

__device__ inline void from_float(float value, float& to) { to = value; }
__device__ inline void from_float(float value, BFloat16& to) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline void from_float(float value, Float16& to) { to.bits = __half_as_ushort(__float2half_rn(value)); }

// N numbers that are loaded and stored together.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

template <int N, class T>
__device__ inline Pack<T, N> load(const T* from, int64_t pack) {
  return reinterpret_cast<const Pack<T, N>*>(from)[pack];
}

template <int N, class T>
__device__ inline void store(T* to, int64_t pack, const Pack<T, N>& value) {
  reinterpret_cast<Pack<T, N>*>(to)[pack] = value;
}

// Rows that a block takes at once, each shared by kThreads threads: a block has 128 threads or more. Blocks are
// (kThreads, kRows<kThreads>).
template <int kThreads>
constexpr int kRows = kThreads < 128 ? 128 / kThreads : 1;
template <int kThreads>
constexpr int kBlock = kThreads * kRows<kThreads>;
// Blocks of the backward pass that a multiprocessor should have the registers for.
template <class X, class W, int kThreads>
constexpr int kAtOnce = kThreads > 384 ? 1 : kThreads > 128 || sizeof(W) > sizeof(X) ? 2 : 3;

// The sum over the threads that share a row, known to all of them. All threads of a block must call it.
template <int kThreads>
__device__ inline float sum_of_row(float value) {
  static_assert(kThreads % 32 == 0 || kThreads == 16, "whole warps, or halves");
#pragma unroll
  for (int step = kThreads < 32 ? kThreads / 2 : 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  }
  if constexpr (kThreads > 32) {
    __shared__ float of_warps[kRows<kThreads>][kThreads / 32];
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.y][threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) value += of_warps[threadIdx.y][warp];
  }
  return value;
}

// Forward: rows in registers. kItems packs of N numbers for each of kThreads threads; hidden is a multiple of N.
template <class X, class W, int N, int kThreads, int kItems>
__global__ void __launch_bounds__(kBlock<kThreads>) forward_kept(Forward<X, W> call) {
  const int64_t row = int64_t(blockIdx.x) * kRows<kThreads> + threadIdx.y;
  const int packs = kRows<kThreads> == 1 || row < call.rows ? call.hidden / N : 0;
  const X* x = call.x + row * call.hidden;
  Pack<X, N> kept[kItems];
  float sum = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int pack = item * kThreads + threadIdx.x;
    if (pack < packs) {
      kept[item] = load<N>(x, pack);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += to_float(kept[item].values[i]) * to_float(kept[item].values[i]);
    }
  }
  const float mean = sum_of_row<kThreads>(sum) / call.hidden;
  const float inverse_rms = 1.0f / sqrtf(mean + float(call.epsilon));
  if (threadIdx.x == 0 && packs) call.inverse_rms[row] = inverse_rms;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int pack = item * kThreads + threadIdx.x;
    if (pack < packs) {
      const Pack<W, N> weight = load<N>(call.weight, pack);
      Pack<W, N> y;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        from_float(to_float(kept[item].values[i]) * inverse_rms * to_float(weight.values[i]), y.values[i]);
      }
      store(call.y + row * call.hidden, pack, y);
    }
  }
}

// Forward: rows of any length, read twice.
template <class X, class W, int N, int kThreads>
__global__ void __launch_bounds__(kThreads) forward_reread(Forward<X, W> call) {
  const int64_t row = blockIdx.x;
  const int64_t packs = call.hidden / N;
  const X* x = call.x + row * call.hidden;
  float sum = 0;
  for (int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const Pack<X, N> value = load<N>(x, pack);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += to_float(value.values[i]) * to_float(value.values[i]);
  }
  const float inverse_rms = 1.0f / sqrtf(sum_of_row<kThreads>(sum) / call.hidden + float(call.epsilon));
  if (threadIdx.x == 0) call.inverse_rms[row] = inverse_rms;
  for (int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const Pack<X, N> value = load<N>(x, pack);
    const Pack<W, N> weight = load<N>(call.weight, pack);
    Pack<W, N> y;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      from_float(to_float(value.values[i]) * inverse_rms * to_float(weight.values[i]), y.values[i]);
    }
    store(call.y + row * call.hidden, pack, y);
  }
}

// Backward. With n = x * inverse_rms: x_grad = inverse_rms * grad * weight - x * along_x, where
// along_x = inverse_rms^3 * mean(grad * weight * x); weight_grad = sum over rows of grad * n.

// Reads a row of so many packs into the registers of the threads that share it.
template <int N, int kThreads, int kItems, class X, class W>
__device__ inline void load_row(const Backward<X, W>& call, int64_t row, int packs, Pack<X, N> (&x)[kItems],
                                Pack<W, N> (&grad)[kItems]) {
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int pack = item * kThreads + threadIdx.x;
    if (pack < packs) {
      x[item] = load<N>(call.x + row * call.hidden, pack);
      grad[item] = load<N>(call.y_grad + row * call.hidden, pack);
    }
  }
}

// Rows in registers; block b takes the rows b * kRows, ..., then those gridDim.x * kRows further, and leaves its sum in
// parts[b].
template <class X, class W, int N, int kThreads, int kItems>
__global__ void __launch_bounds__(kBlock<kThreads>, kAtOnce<X, W, kThreads>) backward_kept(Backward<X, W> call, float* parts) {
  const int packs = call.hidden / N;
  const int64_t step = int64_t(gridDim.x) * kRows<kThreads>;
  const auto packs_of = [&](int64_t row) { return row < call.rows ? packs : 0; };
  float sums[kItems][N] = {};
  Pack<X, N> x[kItems], next_x[kItems];
  Pack<W, N> grad[kItems], next_grad[kItems];
  int64_t row = int64_t(blockIdx.x) * kRows<kThreads> + threadIdx.y;
  load_row<N, kThreads, kItems>(call, row, packs_of(row), next_x, next_grad);
  for (; row - threadIdx.y < call.rows; row += step) {  // as often for all threads of a block
    const int own = packs_of(row);
    float dot = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int pack = item * kThreads + threadIdx.x;
      x[item] = next_x[item];
      grad[item] = next_grad[item];
      if (pack < own) {
        const Pack<W, N> weight = load<N>(call.weight, pack);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          dot += to_float(grad[item].values[i]) * to_float(weight.values[i]) * to_float(x[item].values[i]);
        }
      }
    }
    // The next row is on its way while threads wait for each other's sums: on an H200 1.3 times as fast.
    load_row<N, kThreads, kItems>(call, row + step, packs_of(row + step), next_x, next_grad);
    const float inverse_rms = own ? call.inverse_rms[row] : 0;
    const float along_x = inverse_rms * inverse_rms * inverse_rms * (sum_of_row<kThreads>(dot) / call.hidden);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int pack = item * kThreads + threadIdx.x;
      if (pack < own) {
        const Pack<W, N> weight = load<N>(call.weight, pack);
        Pack<X, N> x_grad;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float value = to_float(x[item].values[i]), scaled = to_float(grad[item].values[i]) * inverse_rms;
          sums[item][i] += scaled * value;
          from_float(scaled * to_float(weight.values[i]) - value * along_x, x_grad.values[i]);
        }
        store(call.x_grad + row * call.hidden, pack, x_grad);
      }
    }
  }
  float* part = parts + blockIdx.x * call.hidden;
  if constexpr (kRows<kThreads> == 1) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int pack = item * kThreads + threadIdx.x;
      if (pack < packs) {
#pragma unroll
        for (int i = 0; i < N; ++i) part[int64_t(pack) * N + i] = sums[item][i];
      }
    }
  } else {
    __shared__ float of_rows[kRows<kThreads>][kThreads * kItems * N];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
#pragma unroll
      for (int i = 0; i < N; ++i) of_rows[threadIdx.y][(item * kThreads + threadIdx.x) * N + i] = sums[item][i];
    }
    __syncthreads();
    for (int column = threadIdx.y * kThreads + threadIdx.x; column < call.hidden; column += kBlock<kThreads>) {
      float sum = 0;
#pragma unroll
      for (int one = 0; one < kRows<kThreads>; ++one) sum += of_rows[one][column];
      part[column] = sum;
    }
  }
}

// Rows of any length, first half: along_x [rows].
template <class X, class W, int N, int kThreads>
__global__ void __launch_bounds__(kThreads) backward_dots(Backward<X, W> call, float* along_x) {
  const int64_t row = blockIdx.x;
  float dot = 0;
  for (int64_t pack = threadIdx.x; pack < call.hidden / N; pack += kThreads) {
    const Pack<X, N> x = load<N>(call.x + row * call.hidden, pack);
    const Pack<W, N> grad = load<N>(call.y_grad + row * call.hidden, pack);
    const Pack<W, N> weight = load<N>(call.weight, pack);
#pragma unroll
    for (int i = 0; i < N; ++i) dot += to_float(grad.values[i]) * to_float(weight.values[i]) * to_float(x.values[i]);
  }
  const float inverse_rms = call.inverse_rms[row];
  dot = sum_of_row<kThreads>(dot);
  if (threadIdx.x == 0) along_x[row] = inverse_rms * inverse_rms * inverse_rms * (dot / call.hidden);
}

// Second half: blockIdx.x is a tile of kThreads packs, blockIdx.y a part of the rows, whose sum goes to parts.
template <class X, class W, int N, int kThreads>
__global__ void __launch_bounds__(kThreads) backward_tiles(Backward<X, W> call, const float* along_x, float* parts) {
  const int64_t pack = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= call.hidden / N) return;
  const Pack<W, N> weight = load<N>(call.weight, pack);
  float sums[N] = {};
  for (int64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
    const Pack<X, N> x = load<N>(call.x + row * call.hidden, pack);
    const Pack<W, N> grad = load<N>(call.y_grad + row * call.hidden, pack);
    Pack<X, N> x_grad;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = to_float(x.values[i]), scaled = to_float(grad.values[i]) * call.inverse_rms[row];
      sums[i] += scaled * value;
      from_float(scaled * to_float(weight.values[i]) - value * along_x[row], x_grad.values[i]);
    }
    store(call.x_grad + row * call.hidden, pack, x_grad);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) parts[blockIdx.y * call.hidden + pack * N + i] = sums[i];
}

// The weight's gradient from parts [count, hidden]: 32 columns a block, each of its 32 warps takes every 32nd part.
template <class W>
__global__ void __launch_bounds__(1024) sum_parts(const float* parts, int64_t count, int64_t hidden, W* weight_grad) {
  __shared__ float of_warps[32][33];  // 33: so that a column's numbers lie in different banks
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < hidden) {
#pragma unroll 4
    for (int64_t part = threadIdx.y; part < count; part += 32) sum += parts[part * hidden + column];
  }
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const float total = sum_of_row<32>(of_warps[threadIdx.x][threadIdx.y]);  // of one column a warp
  const int64_t own = int64_t(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && own < hidden) from_float(total, weight_grad[own]);
}

}  // namespace cuda
}  // namespace rms_norm

// The CUDA kernels of RMSNorm. No framework, no fast-math.
//
// Up to a size, a row lies in the registers of one group of threads (a warp, or a block): it is read from memory once,
// in packs of 16 bytes. Longer rows are read twice, the second time mostly from the L2 cache. In the backward pass a
// group takes many rows and keeps its sum of the weight's gradient in registers; the sums of all groups are added by a
// last kernel, in their order.
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

// The sum over kThreads threads that share a row, known to all of them. Blocks are (kThreads, rows).
template <int kThreads>
__device__ inline float sum_of_row(float value) {
  static_assert(kThreads % 32 == 0, "whole warps");
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  if constexpr (kThreads > 32) {  // one row a block
    __shared__ float of_warps[kThreads / 32];
    __syncthreads();  // the last sum has been read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) value += of_warps[warp];
  }
  return value;
}

// Forward: rows in registers. kItems packs of N numbers for each of kThreads threads; hidden is a multiple of N.
template <class X, class W, int N, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads < 128 ? 128 : kThreads) forward_kept(Forward<X, W> call) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= call.rows) return;  // whole warps
  const int packs = call.hidden / N;
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
  if (threadIdx.x == 0) call.inverse_rms[row] = inverse_rms;
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

// Rows in registers; group g of threads takes the rows g, g + groups, ... and leaves its sum in parts[g].
template <class X, class W, int N, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads < 128 ? 128 : kThreads, 1) backward_kept(Backward<X, W> call, float* parts) {
  const int packs = call.hidden / N;
  const int64_t group = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t groups = int64_t(gridDim.x) * blockDim.y;
  float sums[kItems][N] = {};
  for (int64_t row = group; row < call.rows; row += groups) {
    Pack<X, N> x[kItems];
    Pack<W, N> grad[kItems];
    float dot = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int pack = item * kThreads + threadIdx.x;
      if (pack < packs) {
        x[item] = load<N>(call.x + row * call.hidden, pack);
        grad[item] = load<N>(call.y_grad + row * call.hidden, pack);
        const Pack<W, N> weight = load<N>(call.weight, pack);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          dot += to_float(grad[item].values[i]) * to_float(weight.values[i]) * to_float(x[item].values[i]);
        }
      }
    }
    const float inverse_rms = call.inverse_rms[row];
    const float along_x = inverse_rms * inverse_rms * inverse_rms * (sum_of_row<kThreads>(dot) / call.hidden);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int pack = item * kThreads + threadIdx.x;
      if (pack < packs) {
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
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int pack = item * kThreads + threadIdx.x;
    if (pack < packs) {
#pragma unroll
      for (int i = 0; i < N; ++i) parts[group * call.hidden + int64_t(pack) * N + i] = sums[item][i];
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

// The weight's gradient from parts [count, hidden]: 32 columns a block, its 8 warps take every eighth part.
template <class W>
__global__ void __launch_bounds__(256) sum_parts(const float* parts, int64_t count, int64_t hidden, W* weight_grad) {
  __shared__ float of_warps[8][32];
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < hidden) {
    for (int64_t part = threadIdx.y; part < count; part += 8) sum += parts[part * hidden + column];
  }
  of_warps[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < hidden) {
    sum = 0;
#pragma unroll
    for (int warp = 0; warp < 8; ++warp) sum += of_warps[warp][threadIdx.x];
    from_float(sum, weight_grad[column]);
  }
}

}  // namespace cuda
}  // namespace rms_norm

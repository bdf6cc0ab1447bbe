// RMSNorm for processors: y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis, and its gradients.
//
//   forward(Forward<float, float>{x, weight, y, inverse_rms, rows, hidden, epsilon});
//
// Numbers are float, BFloat16 or Float16, the weight's also float beside half x; y and its gradient have the weight's
// dtype. Sums are kept in float and double. Knows no framework. The instruction set is chosen when it runs; threads are
// OpenMP's. Every row is computed by one thread, and the weight's gradient is summed in parts that do not depend on the
// number of threads: results are equal to the bit for any number.
#pragma once

#include <memory>

#include "rms_norm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rms_norm {

#define STREAMS 0
#define LANES 4
namespace portable {  // SSE2 on x86, NEON on ARM
#include "rms_norm_cpu.inc"
}
#undef LANES
#undef STREAMS

#if defined(__x86_64__)
#define STREAMS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define LANES 8
namespace avx2 {
#include "rms_norm_cpu.inc"
}
#undef LANES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define LANES 16
namespace avx512 {
#include "rms_norm_cpu.inc"
}
#undef LANES
#pragma GCC pop_options
#undef STREAMS
#endif

enum class Isa { portable, avx2, avx512 };

// The widest that this processor has.
inline Isa best_isa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return Isa::avx512;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::avx2 : Isa::portable;
  }();
  return best;
#else
  return Isa::portable;
#endif
}

// A call of the namespace of an instruction set.
#if defined(__x86_64__)
#define RMS_NORM_ON(isa, call) \
  ((isa) == Isa::avx512 ? avx512::call : (isa) == Isa::avx2 ? avx2::call : portable::call)
#else
#define RMS_NORM_ON(isa, call) portable::call
#endif

// Results of this size have left the caches before anybody reads them: they are written past them.
constexpr int64_t kPastCachesBytes = 16 << 20;
// Fewer numbers than this are not worth waking threads for.
constexpr int64_t kParallelNumbers = 1 << 15;
// Rows that a thread takes at a time.
constexpr int64_t kRows = 8;
// Parts that the weight's gradient is summed in: enough for many threads, few enough to add up quickly.
constexpr int64_t kParts = 64;
// Columns that a thread takes at a time, when it adds up those parts.
constexpr int64_t kColumns = 256;

template <class T>
inline bool goes_past_caches(const T* to, int64_t rows, int64_t hidden) {
  const bool aligned = reinterpret_cast<uintptr_t>(to) % 64 == 0 && hidden * sizeof(T) % 64 == 0;
  return aligned && rows * hidden * static_cast<int64_t>(sizeof(T)) >= kPastCachesBytes;
}

inline int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class X, class W>
inline void forward(const Forward<X, W>& call, Isa isa = best_isa()) {
  const bool past_caches = goes_past_caches(call.y, call.rows, call.hidden);
#pragma omp parallel if (call.rows * call.hidden >= kParallelNumbers)
  {
#pragma omp for schedule(static) nowait
    for (int64_t chunk = 0; chunk < divide_up(call.rows, kRows); ++chunk) {
      const int64_t begin = chunk * kRows, end = smaller(begin + kRows, call.rows);
      if (past_caches) {
        RMS_NORM_ON(isa, forward_rows<true>(call, begin, end));
      } else {
        RMS_NORM_ON(isa, forward_rows<false>(call, begin, end));
      }
    }
    RMS_NORM_ON(isa, finish());
  }
}

template <class X, class W>
inline void backward(const Backward<X, W>& call, Isa isa = best_isa()) {
  const bool past_caches = goes_past_caches(call.x_grad, call.rows, call.hidden);
  const int64_t rows_of_part = divide_up(divide_up(call.rows, kParts), kRows) * kRows;
  const int64_t parts = call.rows == 0 ? 0 : divide_up(call.rows, rows_of_part);
  const std::unique_ptr<float[]> sums(new float[parts * call.hidden]);
#pragma omp parallel if (call.rows * call.hidden >= kParallelNumbers)
  {
#pragma omp for schedule(static)
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = part * rows_of_part, end = smaller(begin + rows_of_part, call.rows);
      float* const sum = sums.get() + part * call.hidden;
      if (past_caches) {
        RMS_NORM_ON(isa, backward_rows<true>(call, begin, end, sum));
      } else {
        RMS_NORM_ON(isa, backward_rows<false>(call, begin, end, sum));
      }
    }
    RMS_NORM_ON(isa, finish());
#pragma omp for schedule(static) nowait
    for (int64_t chunk = 0; chunk < divide_up(call.hidden, kColumns); ++chunk) {
      const int64_t begin = chunk * kColumns, end = smaller(begin + kColumns, call.hidden);
      RMS_NORM_ON(isa, sum_parts(call, sums.get(), parts, begin, end));
    }
  }
}

}  // namespace rms_norm

#undef RMS_NORM_ON

// The CPU kernels as C functions, for tests and benchmarks that know no framework:
//
//   g++ -O3 -std=c++17 -fopenmp -shared -fPIC rms_norm_c.cc -o librms_norm.so
//
// Dtypes: 0 float, 1 bfloat16, 2 float16. Instruction sets: 0 portable, 1 AVX2, 2 AVX-512.
#include <omp.h>

#include <cstring>

#include "rms_norm_cpu.h"

using namespace rms_norm;

namespace {

template <class X, class W>
void run_forward(const void* x, const void* weight, void* y, float* inverse_rms, int64_t rows, int64_t hidden,
                 double epsilon, Isa isa) {
  forward(Forward<X, W>{(const X*)x, (const W*)weight, (W*)y, inverse_rms, rows, hidden, epsilon}, isa);
}

template <class X, class W>
void run_backward(const void* y_grad, const void* x, const void* weight, const float* inverse_rms, void* x_grad,
                  void* weight_grad, int64_t rows, int64_t hidden, Isa isa) {
  backward(Backward<X, W>{(const W*)y_grad, (const X*)x, (const W*)weight, inverse_rms, (X*)x_grad, (W*)weight_grad,
                          rows, hidden},
           isa);
}

// The function of a pair of dtypes; a null pointer for a pair that there is not.
#define OF_DTYPES(function, x, weight)                                         \
  (x == 0 && weight == 0   ? function<float, float>                            \
   : x == 1 && weight == 1 ? function<BFloat16, BFloat16>                      \
   : x == 1 && weight == 0 ? function<BFloat16, float>                         \
   : x == 2 && weight == 2 ? function<Float16, Float16>                        \
   : x == 2 && weight == 0 ? function<Float16, float>                          \
                           : nullptr)

}  // namespace

extern "C" {

int rms_norm_best_isa() { return static_cast<int>(best_isa()); }

void rms_norm_set_threads(int threads) { omp_set_num_threads(threads); }

// What a benchmark compares with: memcpy by all threads.
void copy(void* to, const void* from, int64_t bytes) {
  const int64_t part = divide_up(divide_up(bytes, omp_get_max_threads()), 64) * 64;
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < bytes; begin += part) {
    memcpy((char*)to + begin, (const char*)from + begin, smaller(part, bytes - begin));
  }
}

void rms_norm_forward(const void* x, const void* weight, void* y, float* inverse_rms, int64_t rows, int64_t hidden,
                      double epsilon, int x_dtype, int weight_dtype, int isa) {
  OF_DTYPES(run_forward, x_dtype, weight_dtype)(x, weight, y, inverse_rms, rows, hidden, epsilon, Isa(isa));
}

void rms_norm_backward(const void* y_grad, const void* x, const void* weight, const float* inverse_rms, void* x_grad,
                       void* weight_grad, int64_t rows, int64_t hidden, int x_dtype, int weight_dtype, int isa) {
  OF_DTYPES(run_backward, x_dtype, weight_dtype)
  (y_grad, x, weight, inverse_rms, x_grad, weight_grad, rows, hidden, Isa(isa));
}
}

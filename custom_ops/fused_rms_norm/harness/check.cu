// The CUDA kernels against the formula in double precision, without any framework; exit code 1 where they differ.
//
//   nvcc -O3 -std=c++17 -arch=native harness/check.cu csrc/rms_norm_cuda.cu -o check && ./check
//   ./check float32-float32      one pair of dtypes, of x and of the weight, alone
//   ./check ROWS HIDDEN          one shape alone
//
// cuda_on_cpu.py compiles it without nvcc, to run without a card.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "../csrc/rms_norm_cuda.h"

using namespace rms_norm;

namespace {

constexpr double kEpsilon = 1e-6;

void succeed(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(code));
  std::exit(1);
}

// Dtypes ------------------------------------------------------------------------------------------------------------

// allowed: error of the largest number, that of one rounding and, for float, of a sum in another order.
template <class T>
struct Dtype;
template <>
struct Dtype<float> {
  static constexpr const char* name = "float32";
  static constexpr double allowed = 1e-6;
};
template <>
struct Dtype<BFloat16> {
  static constexpr const char* name = "bfloat16";
  static constexpr double allowed = 0x1p-8 + 1e-6;
};
template <>
struct Dtype<Float16> {
  static constexpr const char* name = "float16";
  static constexpr double allowed = 0x1p-11 + 1e-6;
};

double decode(float value) { return value; }

double decode(BFloat16 value) {
  const uint32_t bits = uint32_t(value.bits) << 16;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

double decode(Float16 value) {
  const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  const double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return value.bits >> 15 ? -magnitude : magnitude;
}

void encode(float value, float& to) { to = value; }

// Cut, not rounded: inputs need no more.
void encode(float value, BFloat16& to) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to.bits = bits >> 16;
}

void encode(float value, Float16& to) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int exponent = int(bits >> 23 & 255) - 127 + 15;
  to.bits = exponent <= 0 ? 0 : (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023);
}

// Tensors -----------------------------------------------------------------------------------------------------------

// Numbers on the card, `shift` numbers behind the begin of their memory.
template <class T>
class OnCard {
 public:
  OnCard(int64_t size, int64_t shift) : size_(size), shift_(shift) {
    succeed(cudaMalloc(&memory_, (size + shift) * sizeof(T)));
    succeed(cudaMemset(memory_, 0xFF, (size + shift) * sizeof(T)));
  }
  OnCard(const OnCard&) = delete;
  ~OnCard() { succeed(cudaFree(memory_)); }

  T* data() const { return memory_ + shift_; }

  // Random numbers; they are returned as they are in T.
  std::vector<double> fill(std::mt19937& numbers, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<T> values(size_);
    std::vector<double> exact(size_);
    for (int64_t i = 0; i < size_; ++i) {
      encode(normal(numbers), values[i]);
      exact[i] = decode(values[i]);
    }
    succeed(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    return exact;
  }

  // The largest difference to what is right, of the largest right number and of `scale`.
  double error(const std::vector<double>& right, double scale = 0) const {
    std::vector<T> found(size_);
    succeed(cudaMemcpy(found.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost));
    double largest = scale, off = 0;
    for (int64_t i = 0; i < size_; ++i) {
      largest = std::fmax(largest, std::fabs(right[i]));
      const double error = std::fabs(decode(found[i]) - right[i]);
      off = error <= off || std::isnan(off) ? off : error;  // one that is not a number stays
    }
    return off == 0 ? 0 : off / largest;
  }

 private:
  T* memory_;
  int64_t size_, shift_;
};

// shift: of x, in numbers; where it is not 0, rows do not begin at multiples of 16 bytes.
template <class X, class W>
bool check(int64_t rows, int64_t hidden, int64_t shift, cudaStream_t stream) {
  std::mt19937 numbers(unsigned(hidden * 31 + rows));
  const int64_t size = rows * hidden;
  OnCard<X> x(size, shift), x_grad(size, 0);
  OnCard<W> weight(hidden, 0), y(size, 0), y_grad(size, 0), weight_grad(hidden, 0);
  OnCard<float> inverse_rms(rows, 0);
  const std::vector<double> xs = x.fill(numbers, 0, 3), weights = weight.fill(numbers, 1, 0.1f);
  const std::vector<double> y_grads = y_grad.fill(numbers, 0, 1);

  cuda::forward(Forward<X, W>{x.data(), weight.data(), y.data(), inverse_rms.data(), rows, hidden, kEpsilon}, stream);
  const Backward<X, W> call{y_grad.data(), x.data(), weight.data(), inverse_rms.data(), x_grad.data(),
                            weight_grad.data(), rows, hidden};
  OnCard<float> workspace(cuda::workspace_numbers(call), 0);
  cuda::backward(call, workspace.data(), stream);
  succeed(cudaDeviceSynchronize());

  std::vector<double> right_y(size), right_inverse(rows), right_x_grad(size), right_weight_grad(hidden);
  double largest_term = 0;  // x_grad is a difference: of rows of one number almost nothing is left
  for (int64_t row = 0; row < rows; ++row) {
    double squares = 0, dot = 0;
    for (int64_t i = row * hidden; i < (row + 1) * hidden; ++i) {
      squares += xs[i] * xs[i];
      dot += y_grads[i] * weights[i - row * hidden] * xs[i];
    }
    const double inverse = right_inverse[row] = 1 / std::sqrt(squares / hidden + kEpsilon);
    const double along_x = inverse * inverse * inverse * dot / hidden;
    for (int64_t column = 0; column < hidden; ++column) {
      const int64_t i = row * hidden + column;
      right_y[i] = xs[i] * inverse * weights[column];
      const double across = inverse * y_grads[i] * weights[column];
      right_x_grad[i] = across - xs[i] * along_x;
      largest_term = std::fmax(largest_term, std::fabs(across));
      right_weight_grad[column] += y_grads[i] * xs[i] * inverse;
    }
  }
  const double off[] = {y.error(right_y), inverse_rms.error(right_inverse), x_grad.error(right_x_grad, largest_term),
                        weight_grad.error(right_weight_grad)};
  const bool right = off[0] <= Dtype<W>::allowed && off[1] <= 5e-7 && off[2] <= Dtype<X>::allowed &&
                     off[3] <= Dtype<W>::allowed + 1e-6;
  std::printf("%s %s-%s [%ld, %ld]%s: y %.1e, inverse_rms %.1e, x_grad %.1e, weight_grad %.1e\n",
              right ? "right" : "WRONG", Dtype<X>::name, Dtype<W>::name, long(rows), long(hidden),
              shift ? " not aligned" : "", off[0], off[1], off[2], off[3]);
  return right;
}

template <class X, class W>
bool check_dtypes(const char* only, int64_t rows, int64_t hidden, cudaStream_t stream) {
  if (only && std::string(only) != std::string(Dtype<X>::name) + "-" + Dtype<W>::name) return true;
  constexpr int kPack = 16 / sizeof(X);
  if (hidden) return check<X, W>(rows, hidden, 0, stream);
  bool right = true;
  // No row, one number, rows shorter than a warp, not a whole number of packs.
  for (const int64_t odd : {1, 3, 31, 100, 513, 1023}) {
    for (const int64_t some : {0, 1, 37}) right = check<X, W>(some, odd, 0, stream) && right;
  }
  right = check<X, W>(5, 64 * kPack, 1, stream) && right;
  right = check<X, W>(2, 16383, 0, stream) && right;
  // From one pack a row to the longest row of every kernel, and one pack more.
  for (const int64_t packs : {1, 3, 16, 17, 64, 65, 128, 129, 256, 257, 512, 513, 640, 641, 1024, 1025, 2048, 2049, 4096, 4097}) {
    right = check<X, W>(1, packs * kPack, 0, stream) && right;
    right = check<X, W>(packs <= 128 ? 301 : packs <= 1025 ? 101 : 5, packs * kPack, 0, stream) && right;
  }
  if (std::is_same<X, float>()) right = check<X, W>(70000, 4, 0, stream) && right;  // more than a grid can have along y
#ifdef __CUDACC__  // on a CPU these take minutes
  for (const int64_t odd : {1, 3, 1023, 1024}) right = check<X, W>(70000, odd, 0, stream) && right;
  for (const int64_t packs : {128, 512, 1024, 2048, 4096, 8192}) {
    right = check<X, W>(3000, packs * kPack, 0, stream) && right;
  }
#endif
  return right;
}

}  // namespace

int main(int count, char** words) {
  cudaStream_t stream;
  succeed(cudaStreamCreate(&stream));
  const int64_t rows = count == 3 ? std::atoll(words[1]) : 0, hidden = count == 3 ? std::atoll(words[2]) : 0;
  const char* only = count == 2 ? words[1] : nullptr;
  bool right = check_dtypes<float, float>(only, rows, hidden, stream);
  right = check_dtypes<BFloat16, BFloat16>(only, rows, hidden, stream) && right;
  right = check_dtypes<BFloat16, float>(only, rows, hidden, stream) && right;
  right = check_dtypes<Float16, Float16>(only, rows, hidden, stream) && right;
  right = check_dtypes<Float16, float>(only, rows, hidden, stream) && right;
#ifndef __CUDACC__
  for (const auto& instance : cuda_on_cpu::instances) std::printf("ran %s\n", instance.c_str());
#endif
  return right ? 0 : 1;
}

// The CUDA kernels against the CPU's, without any framework; exit code 1 where they differ.
//
//   nvcc -O3 -std=c++17 -arch=native -Xcompiler -fopenmp harness/check.cu csrc/rms_norm_cuda.cu -o check && ./check
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "../csrc/rms_norm_cpu.h"
#include "../csrc/rms_norm_cuda.h"

using namespace rms_norm;

namespace {

template <class T>
T* on_card(const std::vector<T>& values) {
  T* memory = nullptr;
  cudaMalloc(&memory, values.size() * sizeof(T));
  cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  return memory;
}

// The largest difference to what the card computed, of the largest number.
double difference(const std::vector<float>& expected, const float* card) {
  std::vector<float> found(expected.size());
  cudaMemcpy(found.data(), card, found.size() * sizeof(float), cudaMemcpyDeviceToHost);
  double largest = 0, off = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::fmax(largest, std::fabs(expected[i]));
    const double error = std::fabs(double(found[i]) - expected[i]);
    off = error <= off ? off : error;  // also where it is not a number
  }
  return off / largest;
}

bool check(int64_t rows, int64_t hidden) {
  std::mt19937 numbers(hidden);
  std::normal_distribution<float> normal;
  const int64_t size = rows * hidden;
  std::vector<float> x(size), weight(hidden), y_grad(size), y(size), inverse_rms(rows), x_grad(size), weight_grad(hidden);
  for (auto* values : {&x, &weight, &y_grad}) {
    for (float& value : *values) value = normal(numbers);
  }
  Forward<float, float> forward_call{x.data(), weight.data(), y.data(), inverse_rms.data(), rows, hidden, 1e-6};
  Backward<float, float> backward_call{y_grad.data(), x.data(), weight.data(), inverse_rms.data(),
                                       x_grad.data(), weight_grad.data(), rows, hidden};
  forward(forward_call);
  backward(backward_call);

  float *card_y = on_card(y), *card_inverse = on_card(inverse_rms), *card_x_grad = on_card(x_grad);
  float *card_weight_grad = on_card(weight_grad), *card_x = on_card(x), *card_weight = on_card(weight);
  float* card_y_grad = on_card(y_grad);
  cudaMemset(card_y, 0xFF, size * sizeof(float));
  cudaMemset(card_x_grad, 0xFF, size * sizeof(float));
  cudaMemset(card_weight_grad, 0xFF, hidden * sizeof(float));
  Forward<float, float> card_forward{card_x, card_weight, card_y, card_inverse, rows, hidden, 1e-6};
  Backward<float, float> card_backward{card_y_grad, card_x, card_weight, card_inverse,
                                       card_x_grad, card_weight_grad, rows, hidden};
  float* workspace = nullptr;
  cudaMalloc(&workspace, cuda::workspace_numbers(card_backward) * sizeof(float));
  cuda::forward(card_forward, nullptr);
  cuda::backward(card_backward, workspace, nullptr);
  const double off[] = {difference(y, card_y), difference(x_grad, card_x_grad), difference(weight_grad, card_weight_grad)};
  for (float* memory : {card_y, card_inverse, card_x_grad, card_weight_grad, card_x, card_weight, card_y_grad, workspace}) {
    cudaFree(memory);
  }
  const bool right = off[0] <= 1e-6 && off[1] <= 1e-6 && off[2] <= 2e-6;
  std::printf("%s [%ld, %ld]: y %.1e, x_grad %.1e, weight_grad %.1e\n", right ? "right" : "WRONG", rows, hidden, off[0],
              off[1], off[2]);
  return right;
}

}  // namespace

int main() {
  bool right = true;
  for (const int64_t hidden : {64, 100, 512, 1000, 1023, 2048, 4096, 8192, 16384, 20000, 65536}) {
    for (const int64_t rows : {1, 37, 3000}) {
      if (rows * hidden <= (64 << 20)) right = check(rows, hidden) && right;
    }
  }
  return right ? 0 : 1;
}

// What a call of RMSNorm is, for every device: y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis.
#pragma once

#include <cstdint>

namespace rms_norm {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// x, y [rows, hidden], weight [hidden], inverse_rms [rows]; all contiguous.
template <class X, class W>
struct Forward {
  const X* x;
  const W* weight;
  W* y;
  float* inverse_rms;
  int64_t rows, hidden;
  double epsilon;
};

// y_grad, x, x_grad [rows, hidden], weight, weight_grad [hidden], inverse_rms [rows] as forward left it.
template <class X, class W>
struct Backward {
  const W* y_grad;
  const X* x;
  const W* weight;
  const float* inverse_rms;
  X* x_grad;
  W* weight_grad;
  int64_t rows, hidden;
};

}  // namespace rms_norm

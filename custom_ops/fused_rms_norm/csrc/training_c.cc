// The operators of a training step and of answering as C functions, for tests that know no framework; see rms_norm_c.cc.
#include "training_cpu.h"

using namespace training;

extern "C" {

int training_best_isa() { return static_cast<int>(best_isa()); }

void training_set_threads(int threads) { omp_set_num_threads(threads); }

int training_has_half_products() { return has_half_products(); }

// Forward where out_grad is null, else backward. sizes: batch, length, heads, head_size.
void attention(const float* q, const float* k, const float* v, float* out, float* log_sums, const float* out_grad,
               float* q_grad, float* k_grad, float* v_grad, const int64_t* sizes, float scale, int halves, int isa) {
  const Attention call{q, k, v, out, log_sums, sizes[0], sizes[1], sizes[2], sizes[3], scale, halves != 0};
  if (out_grad == nullptr) return attend(call, Isa(isa));
  attend_backward({call, out_grad, q_grad, k_grad, v_grad}, Isa(isa));
}

// sizes: texts, heads, queries, head_size. texts: as PackedText. keys and values: of each group.
void packed_attention(const float* q, const float* k, const float* v, const float* slopes, float* out,
                      float* const* keys, float* const* values, const int64_t* texts, const int64_t* sizes, float scale,
                      int isa) {
  const auto* const table = reinterpret_cast<const PackedText*>(texts);
  attend_texts({q, k, v, slopes, out, keys, values, table, sizes[0], sizes[1], sizes[2], sizes[3], scale}, Isa(isa));
}

void rotary(const float* x, const float* cos, const float* sin, float* y, const int64_t* sizes, int back, int isa) {
  rotate({x, cos, sin, y, sizes[0], sizes[1], sizes[2], sizes[3]}, back, Isa(isa));
}

void swiglu_forward(const float* gate, const float* up, float* y, int64_t numbers, int isa) {
  swiglu({gate, up, y}, numbers, Isa(isa));
}

void swiglu_gradient(const float* gate, const float* up, const float* y_grad, float* gate_grad, float* up_grad,
                     int64_t numbers, int isa) {
  swiglu_backward({gate, up, y_grad, gate_grad, up_grad}, numbers, Isa(isa));
}
}

// Operators of a LLaMA's training step for processors, float32: causal attention, rotary embedding and SwiGLU, forward
// and backward, each in one pass over memory; and attention of many texts that a server answers, forward only. Know no
// framework.
//
// Attention never writes the weights [queries, keys] to memory: they are made in blocks that stay in the cache, without
// the part above the diagonal, and made again for the gradient (Dao et al. 2022, "FlashAttention", algorithms 1 and 4;
// here with whole rows of keys, which need no rescaling). Each head is computed by one thread, in an order that does not
// depend on the number of threads: results are equal to the bit for any number.
#pragma once

#include <omp.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "rms_norm_cpu.h"

namespace training {

using rms_norm::best_isa;
using rms_norm::divide_up;
using rms_norm::Isa;
using rms_norm::smaller;

// q, k, v, out [batch, length, heads, head_size], log_sums [batch, heads, length]; all contiguous. head_size: a multiple
// of kHeadSizes. halves: the factors of products are rounded to bfloat16, where the processor multiplies such numbers.
struct Attention {
  const float *q, *k, *v;
  float *out, *log_sums;
  int64_t batch, length, heads, head_size;
  float scale;
  bool halves;
};

struct AttentionBackward {
  Attention forward;
  const float* out_grad;
  float *q_grad, *k_grad, *v_grad;
};

// x, y [batch, length, heads, head_size], cos, sin [length, head_size].
struct Rotary {
  const float *x, *cos, *sin;
  float* y;
  int64_t batch, length, heads, head_size;
};

// A text of a row: its `count` tokens from `start` on see `before` earlier tokens; each also sees itself and those before
// it in the row. Its keys and values are at a place of a group's tensors [places, heads, capacity, head_size].
struct PackedText {
  int64_t group, place, capacity, start, count, before;
};

// q, out [tokens, heads, queries, head_size], k, v [tokens, heads, head_size], slopes [heads, queries]: to the score of
// the token at position p of its text, slope * p is added. keys, values: of each group; get the new ones. head_size: a
// multiple of kHeadSizes.
struct PackedAttention {
  const float *q, *k, *v, *slopes;
  float* out;
  float *const *keys, *const *values;
  const PackedText* texts;
  int64_t count, heads, queries, head_size;
  float scale;
};

struct SwiGLU {
  const float *gate, *up;
  float* y;
};

struct SwiGLUBackward {
  const float *gate, *up, *y_grad;
  float *gate_grad, *up_grad;
};

// Two neighboring numbers in bfloat16, the first in the lower bits.
typedef int32_t Pair;

// A matrix whose rows and columns lie `row` and `column` numbers apart.
template <class Number>
struct Strided {
  const Number* from;
  int64_t row, column;
};

constexpr int64_t kHeadSizes = 16;
// Queries of a block: their weights of 256 keys stay in a core's first caches.
constexpr int64_t kQueries = 48;
// Numbers that a thread takes at a time, and fewer than which are not worth waking threads for.
constexpr int64_t kNumbers = 1 << 13, kParallelNumbers = 1 << 15;

// Numbers in a row of keys: whole vectors, an odd number of lines of the cache, so that rows do not share its sets.
inline int64_t padded(int64_t length) { return (divide_up(length, 16) | 1) * 16; }

#define HALVES 0
#define LANES 4
#define ROWS 4
#define VECTORS 2
namespace portable {
#include "training_cpu.inc"
}
#undef LANES
#undef ROWS

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define ROWS 6
namespace avx2 {
#include "training_cpu.inc"
}
#undef LANES
#undef VECTORS
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define LANES 16
#define VECTORS 4
namespace avx512 {
#include "training_cpu.inc"
}
#undef HALVES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define HALVES 1
namespace avx512_bf16 {
#include "training_cpu.inc"
}
#undef LANES
#undef ROWS
#pragma GCC pop_options
#endif
#undef VECTORS
#undef HALVES

#if defined(__x86_64__)
#define TRAINING_ON(isa, call) \
  ((isa) == Isa::avx512 ? avx512::call : (isa) == Isa::avx2 ? avx2::call : portable::call)
#define ATTENTION_ON(isa, halves, call) ((halves) ? avx512_bf16::call : TRAINING_ON(isa, call))
#else
#define TRAINING_ON(isa, call) portable::call
#define ATTENTION_ON(isa, halves, call) portable::call
#endif

inline bool has_half_products() {
#if defined(__x86_64__)
  static const bool has = best_isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

// Memory for every thread's blocks, `numbers` floats each; each begins on a line of the cache.
class Workspace {
 public:
  explicit Workspace(int64_t numbers)
      : numbers_(divide_up(numbers, 16) * 16),
        memory_(static_cast<float*>(std::aligned_alloc(64, omp_get_max_threads() * numbers_ * sizeof(float)))) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  ~Workspace() { std::free(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  float* of_this_thread() const { return memory_ + omp_get_thread_num() * numbers_; }

 private:
  int64_t numbers_;
  float* memory_;
};

inline void attend(const Attention& call, Isa isa = best_isa()) {
  const bool halves = call.halves && has_half_products();
  const int64_t kept = padded(call.length);
  const int64_t pairs = halves ? kQueries * (kept + call.head_size) / 2 : 0;
  const Workspace workspace((call.head_size + kQueries) * kept + pairs);
#pragma omp parallel for schedule(static)
  for (int64_t head = 0; head < call.batch * call.heads; ++head) {
    ATTENTION_ON(isa, halves, attend_head(call, head / call.heads, head % call.heads, workspace.of_this_thread()));
  }
}

inline void attend_backward(const AttentionBackward& call, Isa isa = best_isa()) {
  const Attention& forward = call.forward;
  const bool halves = forward.halves && has_half_products();
  const int64_t kept = padded(forward.length), pairs = halves ? kQueries * (kept + forward.head_size) / 2 : 0;
  const Workspace workspace(2 * (forward.head_size + kQueries) * kept + pairs);
#pragma omp parallel for schedule(static)
  for (int64_t head = 0; head < forward.batch * forward.heads; ++head) {
    const int64_t batch = head / forward.heads;
    ATTENTION_ON(isa, halves, attend_head_backward(call, batch, head % forward.heads, workspace.of_this_thread()));
  }
}

inline void attend_texts(const PackedAttention& call, Isa isa = best_isa()) {
  int64_t most = 0;
  for (const PackedText* text = call.texts; text < call.texts + call.count; ++text) {
    const int64_t columns = text->count > 1 ? call.head_size : 0;
    const int64_t numbers = (columns + smaller(kQueries, text->count)) * padded(text->before + text->count);
    most = numbers > most ? numbers : most;
  }
  const Workspace workspace(most);
// Not dynamic: gcc then calls functions that the OpenMP runtime of Paddle lacks. Where another library has loaded a
// second runtime, that one answers; it numbers its threads otherwise, and two of them share a workspace.
#pragma omp parallel for schedule(static, 1)
  for (int64_t each = 0; each < call.count * call.heads; ++each) {
    const PackedText& text = call.texts[each / call.heads];
    TRAINING_ON(isa, attend_text(call, text, each % call.heads, workspace.of_this_thread()));
  }
}

inline void rotate(const Rotary& call, bool back, Isa isa = best_isa()) {
  const int64_t size = call.head_size, row = call.heads * size;
#pragma omp parallel for schedule(static) if (call.batch * call.length * row >= kParallelNumbers)
  for (int64_t position = 0; position < call.batch * call.length; ++position) {
    const float* const cos = call.cos + position % call.length * size;
    const float* const sin = call.sin + position % call.length * size;
    for (int64_t at = position * row; at < (position + 1) * row; at += size) {
      TRAINING_ON(isa, rotate_head(call.x + at, cos, sin, call.y + at, size / 2, back));
    }
  }
}

inline void swiglu(const SwiGLU& call, int64_t numbers, Isa isa = best_isa()) {
#pragma omp parallel for schedule(static) if (numbers >= kParallelNumbers)
  for (int64_t begin = 0; begin < numbers; begin += kNumbers) {
    TRAINING_ON(isa, swiglu(call, begin, smaller(begin + kNumbers, numbers)));
  }
}

inline void swiglu_backward(const SwiGLUBackward& call, int64_t numbers, Isa isa = best_isa()) {
#pragma omp parallel for schedule(static) if (numbers >= kParallelNumbers)
  for (int64_t begin = 0; begin < numbers; begin += kNumbers) {
    TRAINING_ON(isa, swiglu_backward(call, begin, smaller(begin + kNumbers, numbers)));
  }
}

}  // namespace training

#undef ATTENTION_ON
#undef TRAINING_ON

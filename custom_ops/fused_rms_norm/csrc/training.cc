// Operators of a training step and of answering on a CPU for Paddle: takes tensors apart, calls the kernels, registers the gradients.
#include "paddle/phi/api/all.h"
#include "training_cpu.h"

namespace {

using paddle::DataType;
using paddle::Tensor;
using Dims = std::vector<int64_t>;

// Shapes and dtypes are checked in Python, with names; here is what would read memory that is not ours.
void check(const Tensor& tensor, const Tensor& like, const char* name) {
  PD_CHECK(tensor.is_cpu() && tensor.dtype() == DataType::FLOAT32, name, ": a float32 tensor on a CPU is needed");
  PD_CHECK(tensor.shape() == like.shape(), name, ": another shape than the first tensor's");
}

// Causal attention -------------------------------------------------------------------------------------------------

training::Attention attention(const Tensor& q, const Tensor& k, const Tensor& v, float* out, float* log_sums, float scale, bool halves) {
  for (const Tensor* tensor : {&q, &k, &v}) check(*tensor, q, "causal_attention");
  const auto shape = q.shape();
  PD_CHECK(shape.size() == 4 && shape[3] % training::kHeadSizes == 0, "causal_attention: q is [b, s, heads, 16 n]");
  return {q.data<float>(), k.data<float>(), v.data<float>(), out, log_sums, shape[0], shape[1], shape[2], shape[3], scale, halves};
}

std::vector<Tensor> Attend(const Tensor& q, const Tensor& k, const Tensor& v, float scale, bool halves) {
  const auto shape = q.shape();
  Tensor out = paddle::empty_like(q);
  Tensor log_sums = paddle::empty({shape[0], shape[2], shape[1]}, DataType::FLOAT32, q.place());
  training::attend(attention(q, k, v, out.data<float>(), log_sums.data<float>(), scale, halves));
  return {out, log_sums};
}

std::vector<Tensor> AttendBackward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                                   const Tensor& log_sums, const Tensor& out_grad, float scale, bool halves) {
  check(out_grad, q, "the gradient of causal_attention");
  Tensor q_grad = paddle::empty_like(q), k_grad = paddle::empty_like(k), v_grad = paddle::empty_like(v);
  const auto forward = attention(q, k, v, const_cast<float*>(out.data<float>()), const_cast<float*>(log_sums.data<float>()), scale, halves);
  training::attend_backward({forward, out_grad.data<float>(), q_grad.data<float>(), k_grad.data<float>(), v_grad.data<float>()});
  return {q_grad, k_grad, v_grad};
}

std::vector<Dims> AttendShapes(Dims q, Dims k, Dims v, float scale, bool halves) { return {q, {q[0], q[2], q[1]}}; }
std::vector<DataType> AttendDtypes(DataType q, DataType k, DataType v) { return {q, q}; }

// Attention of many texts in one row -------------------------------------------------------------------------------

// texts [n, 6]: as PackedText. keys and values are written to, without Paddle's knowledge: nothing computes gradients.
std::vector<Tensor> AttendTexts(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<Tensor>& keys,
                                const std::vector<Tensor>& values, const Tensor& texts, const Tensor& slopes,
                                float scale) {
  constexpr auto name = "packed_attention";
  for (const Tensor* tensor : {&q, &k, &slopes}) check(*tensor, *tensor, name);
  check(v, k, name);
  const auto queries = q.shape(), shape = k.shape();
  PD_CHECK(queries.size() == 4 && shape.size() == 4 && queries[1] == shape[1] && queries[3] == shape[3] &&
               queries[2] % shape[2] == 0 && shape[3] % training::kHeadSizes == 0 && slopes.numel() == queries[2],
           "packed_attention: q is [1, tokens, heads * queries, 16 n], k and v [1, tokens, heads, 16 n], slopes "
           "[heads * queries]");
  PD_CHECK(keys.size() == values.size() && texts.dtype() == DataType::INT64 && texts.numel() % 6 == 0,
           "packed_attention: keys and values are of the same groups, texts is int64 [n, 6]");
  std::vector<float*> groups[2];
  for (size_t group = 0; group < keys.size(); ++group) {
    check(keys[group], keys[group], name);
    check(values[group], keys[group], name);
    groups[0].push_back(const_cast<float*>(keys[group].data<float>()));
    groups[1].push_back(const_cast<float*>(values[group].data<float>()));
  }
  const auto* const table = reinterpret_cast<const training::PackedText*>(texts.data<int64_t>());
  for (auto text = table; text < table + texts.numel() / 6; ++text) {
    PD_CHECK(text->group >= 0 && text->group < static_cast<int64_t>(keys.size()) && text->place >= 0 &&
                 (text->place + 1) * shape[2] * text->capacity * shape[3] <= keys[text->group].numel() &&
                 text->before >= 0 && text->count > 0 && text->before + text->count <= text->capacity &&
                 text->start >= 0 && text->start + text->count <= shape[1],
             "packed_attention: a text is outside of its group or of the row");
  }
  Tensor out = paddle::empty_like(q);
  training::attend_texts({q.data<float>(), k.data<float>(), v.data<float>(), slopes.data<float>(), out.data<float>(),
                          groups[0].data(), groups[1].data(), table, texts.numel() / 6, shape[2], queries[2] / shape[2],
                          shape[3], scale});
  return {out};
}

std::vector<Dims> AttendTextsShapes(Dims q, Dims k, Dims v, std::vector<Dims> keys, std::vector<Dims> values, Dims texts,
                                    Dims slopes, float scale) {
  return {q};
}
std::vector<DataType> AttendTextsDtypes(DataType q, DataType k, DataType v, std::vector<DataType> keys,
                                        std::vector<DataType> values, DataType texts, DataType slopes) {
  return {q};
}

// Rotary embedding -------------------------------------------------------------------------------------------------

Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool back) {
  check(x, x, "rotary_embedding");
  for (const Tensor* table : {&cos, &sin}) check(*table, cos, "rotary_embedding");
  const auto shape = x.shape();
  PD_CHECK(shape.size() == 4 && shape[3] % 2 == 0 && cos.numel() == shape[1] * shape[3],
           "rotary_embedding: x is [b, s, heads, 2 n], cos and sin [s, 2 n]");
  Tensor y = paddle::empty_like(x);
  training::rotate({x.data<float>(), cos.data<float>(), sin.data<float>(), y.data<float>(), shape[0], shape[1], shape[2], shape[3]}, back);
  return y;
}

std::vector<Tensor> Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) { return {rotated(x, cos, sin, false)}; }

std::vector<Tensor> RotateBackward(const Tensor& cos, const Tensor& sin, const Tensor& y_grad) {
  return {rotated(y_grad, cos, sin, true)};
}

std::vector<Dims> RotateShapes(Dims x, Dims cos, Dims sin) { return {x}; }
std::vector<DataType> RotateDtypes(DataType x, DataType cos, DataType sin) { return {x}; }

// SwiGLU -----------------------------------------------------------------------------------------------------------

std::vector<Tensor> Swiglu(const Tensor& gate, const Tensor& up) {
  for (const Tensor* tensor : {&gate, &up}) check(*tensor, gate, "swiglu");
  Tensor y = paddle::empty_like(gate);
  training::swiglu({gate.data<float>(), up.data<float>(), y.data<float>()}, gate.numel());
  return {y};
}

std::vector<Tensor> SwigluBackward(const Tensor& gate, const Tensor& up, const Tensor& y_grad) {
  check(y_grad, gate, "the gradient of swiglu");
  Tensor gate_grad = paddle::empty_like(gate), up_grad = paddle::empty_like(up);
  training::swiglu_backward({gate.data<float>(), up.data<float>(), y_grad.data<float>(), gate_grad.data<float>(),
                             up_grad.data<float>()},
                            gate.numel());
  return {gate_grad, up_grad};
}

std::vector<Dims> SwigluShapes(Dims gate, Dims up) { return {gate}; }
std::vector<DataType> SwigluDtypes(DataType gate, DataType up) { return {gate}; }

}  // namespace

PD_BUILD_OP(cpu_causal_attention)
    .Inputs({"q", "k", "v"})
    .Outputs({"out", "log_sums"})
    .Attrs({"scale: float", "halves: bool"})
    .SetKernelFn(PD_KERNEL(Attend))
    .SetInferShapeFn(PD_INFER_SHAPE(AttendShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(AttendDtypes));

PD_BUILD_GRAD_OP(cpu_causal_attention)
    .Inputs({"q", "k", "v", "out", "log_sums", paddle::Grad("out")})
    .Outputs({paddle::Grad("q"), paddle::Grad("k"), paddle::Grad("v")})
    .Attrs({"scale: float", "halves: bool"})
    .SetKernelFn(PD_KERNEL(AttendBackward));

PD_BUILD_OP(cpu_packed_attention)
    .Inputs({"q", "k", "v", paddle::Vec("keys"), paddle::Vec("values"), "texts", "slopes"})
    .Outputs({"out"})
    .Attrs({"scale: float"})
    .SetKernelFn(PD_KERNEL(AttendTexts))
    .SetInferShapeFn(PD_INFER_SHAPE(AttendTextsShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(AttendTextsDtypes));

PD_BUILD_OP(cpu_rotary_embedding)
    .Inputs({"x", "cos", "sin"})
    .Outputs({"y"})
    .SetKernelFn(PD_KERNEL(Rotate))
    .SetInferShapeFn(PD_INFER_SHAPE(RotateShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(RotateDtypes));

PD_BUILD_GRAD_OP(cpu_rotary_embedding)
    .Inputs({"cos", "sin", paddle::Grad("y")})
    .Outputs({paddle::Grad("x")})
    .SetKernelFn(PD_KERNEL(RotateBackward));

PD_BUILD_OP(cpu_swiglu)
    .Inputs({"gate", "up"})
    .Outputs({"y"})
    .SetKernelFn(PD_KERNEL(Swiglu))
    .SetInferShapeFn(PD_INFER_SHAPE(SwigluShapes))
    .SetInferDtypeFn(PD_INFER_DTYPE(SwigluDtypes));

PD_BUILD_GRAD_OP(cpu_swiglu)
    .Inputs({"gate", "up", paddle::Grad("y")})
    .Outputs({paddle::Grad("gate"), paddle::Grad("up")})
    .SetKernelFn(PD_KERNEL(SwigluBackward));

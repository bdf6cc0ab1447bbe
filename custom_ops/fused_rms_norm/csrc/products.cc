// Matrix products in bfloat16 on a CPU for Paddle: takes tensors apart and calls oneDNN. Gradients are made of the same
// products, in Python.
#include "paddle/phi/api/all.h"
#include "products.h"

void products::fail(const std::string& reason) { PD_THROW("bfloat16 products: ", reason); }

namespace {

using paddle::DataType;
using paddle::Tensor;
using Dims = std::vector<int64_t>;
using products::Matrix;
using products::Order;

// All axes but the last are rows. Transposed: columns.
Matrix matrix(const Tensor& tensor, bool transposed) {
  const bool is_half = tensor.dtype() == DataType::BFLOAT16;
  PD_CHECK(tensor.is_cpu() && (is_half || tensor.dtype() == DataType::FLOAT32) && !tensor.shape().empty(),
           "bfloat16 products: a float32 or bfloat16 matrix on a CPU is needed");
  const int64_t columns = tensor.shape().back(), rows = columns == 0 ? 0 : tensor.numel() / columns;
  return {tensor.data(), transposed ? columns : rows, transposed ? rows : columns,
          transposed ? Order::columns : Order::rows, is_half};
}

Tensor product(const Tensor& left, bool transposed, const Matrix& first, const Matrix& second,
               const paddle::optional<Tensor>& bias) {
  PD_CHECK(first.columns == second.rows && first.columns > 0 && second.columns > 0,
           "bfloat16 products: ", first.rows, " x ", first.columns, " times ", second.rows, " x ", second.columns);
  PD_CHECK(!bias || (bias->is_cpu() && bias->dtype() == DataType::FLOAT32 && bias->numel() == second.columns),
           "bfloat16 products: a float32 bias of ", second.columns, " numbers is needed");
  Dims shape = transposed ? Dims{first.rows} : left.shape();
  if (!transposed) shape.pop_back();
  shape.push_back(second.columns);
  Tensor out = paddle::empty(shape, DataType::FLOAT32, left.place());
  if (first.rows > 0) products::multiply(first, second, bias ? bias->data<float>() : nullptr, out.data<float>());
  return out;
}

std::vector<Tensor> Round(const Tensor& x) {
  const Matrix from = matrix(x, false);
  PD_CHECK(!from.is_half, "bfloat16 products: x is bfloat16 already");
  Tensor y = paddle::empty(x.shape(), DataType::BFLOAT16, x.place());
  if (x.numel() > 0) products::to_half(x.data<float>(), from.rows, from.columns, y.data());
  return {y};
}

std::vector<Tensor> Multiply(const Tensor& left, const Tensor& right, const paddle::optional<Tensor>& bias,
                             bool transposed_left, bool transposed_right) {
  return {product(left, transposed_left, matrix(left, transposed_left), matrix(right, transposed_right), bias)};
}

std::vector<Tensor> Pack(const Tensor& weight, bool transposed) {
  const auto& packing = products::packing(matrix(weight, transposed));
  Tensor packed = paddle::empty({static_cast<int64_t>(packing.bytes() / 2)}, DataType::BFLOAT16, weight.place());
  packing.pack(weight.data(), packed.data());
  return {packed};
}

std::vector<Tensor> MultiplyPacked(const Tensor& left, const Tensor& packed, const paddle::optional<Tensor>& bias,
                                   int64_t columns) {
  const Matrix first = matrix(left, false), second{packed.data(), first.columns, columns, Order::packed, true};
  PD_CHECK(static_cast<size_t>(packed.numel() * 2) == products::packing({nullptr, second.rows, columns, Order::rows, false}).bytes(),
           "bfloat16 products: the weights are packed for another shape than ", second.rows, " x ", columns);
  return {product(left, false, first, second, bias)};
}

}  // namespace

PD_BUILD_OP(cpu_bfloat16).Inputs({"x"}).Outputs({"y"}).SetKernelFn(PD_KERNEL(Round));

PD_BUILD_OP(cpu_product)
    .Inputs({"left", "right", paddle::Optional("bias")})
    .Outputs({"out"})
    .Attrs({"transposed_left: bool", "transposed_right: bool"})
    .SetKernelFn(PD_KERNEL(Multiply));

PD_BUILD_OP(cpu_pack).Inputs({"weight"}).Outputs({"packed"}).Attrs({"transposed: bool"}).SetKernelFn(PD_KERNEL(Pack));

PD_BUILD_OP(cpu_packed_product)
    .Inputs({"left", "packed", paddle::Optional("bias")})
    .Outputs({"out"})
    .Attrs({"columns: int64_t"})
    .SetKernelFn(PD_KERNEL(MultiplyPacked));

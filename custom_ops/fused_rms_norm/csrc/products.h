// Matrix products by oneDNN in bfloat16 with float32 sums. Paddle's wheel ships the library (libs/libdnnl.so.3), loads it,
// and has its threads from the same OpenMP runtime; of its headers it ships only what includes them. So the functions used
// here are declared here, from oneDNN's C interface of version 3 (oneapi/dnnl/dnnl.h), and found in the loaded library.
//
// A product's primitive is made once for each shape. Weights are brought into the order in which oneDNN's kernels read
// them, and into bfloat16 by the same pass.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>

namespace products {

// Throws an error of Paddle's, as any other from an operator ends the process.
[[noreturn]] void fail(const std::string& reason);

// How the numbers of a matrix lie: rows or columns one after the other, or in the order of oneDNN's kernels.
enum class Order : int { rows, columns, packed };

// rows x columns numbers, float32 or bfloat16 (packed: always bfloat16).
struct Matrix {
  const void* data;
  int64_t rows, columns;
  Order order;
  bool is_half;
};

namespace onednn {

struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};
struct Argument {
  int name;
  void* memory;
};
using Dims = std::array<int64_t, 12>;  // DNNL_MAX_NDIMS

// Enumerators of oneapi/dnnl/dnnl_types.h and dnnl_common_types.h.
constexpr int kBfloat16 = 2, kFloat32 = 3;                                            // dnnl_data_type_t
constexpr int kCpu = 1, kInOrder = 1, kAnyTag = 1, kWeightsQuery = 131;               // engine, stream, tag, query
constexpr int kSource = 1, kDestination = 17, kWeights = 33, kBias = 41;              // DNNL_ARG_
constexpr unsigned kOpenMP = 2;                                                       // DNNL_RUNTIME_OMP

#define ONEDNN_FUNCTIONS(each)                                                              \
  each(engine_create, (void**, int, size_t))                                                \
  each(stream_create, (void**, void*, unsigned))                                            \
  each(memory_desc_create_with_strides, (void**, int, const int64_t*, int, const int64_t*)) \
  each(memory_desc_create_with_tag, (void**, int, const int64_t*, int, int))                \
  each(memory_desc_destroy, (void*))                                                        \
  each(memory_create, (void**, const void*, void*, void*))                                  \
  each(memory_set_data_handle, (void*, void*))                                              \
  each(memory_destroy, (void*))                                                             \
  each(matmul_primitive_desc_create, (void**, void*, const void*, const void*, const void*, const void*, const void*)) \
  each(reorder_primitive_desc_create, (void**, const void*, void*, const void*, void*, const void*)) \
  each(primitive_desc_destroy, (void*))                                                     \
  each(primitive_create, (void**, const void*))                                             \
  each(primitive_execute, (const void*, void*, int, const Argument*))                       \
  each(primitive_destroy, (void*))

inline void check(int status, const char* function) {
  if (status != 0) fail(std::string("dnnl_") + function + " failed with status " + std::to_string(status));
}

// The functions of the library, an engine and a stream of it.
class Library {
 public:
#define ONEDNN_DECLARE(name, parameters) int(*name) parameters;
  ONEDNN_FUNCTIONS(ONEDNN_DECLARE)
#undef ONEDNN_DECLARE
  const void* (*primitive_desc_query_md)(const void*, int, int);
  size_t (*memory_desc_get_size)(const void*);
  void *engine, *stream;

  static const Library& get() {
    static const Library library;
    return library;
  }

 private:
  Library() {
    void* const handle = dlopen("libdnnl.so.3", RTLD_NOLOAD | RTLD_LAZY);
    if (handle == nullptr) fail("oneDNN (libdnnl.so.3) is not loaded: Paddle's wheel for CPUs has it");
#define ONEDNN_FIND(name, parameters) find(handle, "dnnl_" #name, name);
    ONEDNN_FUNCTIONS(ONEDNN_FIND)
#undef ONEDNN_FIND
    find(handle, "dnnl_primitive_desc_query_md", primitive_desc_query_md);
    find(handle, "dnnl_memory_desc_get_size", memory_desc_get_size);
    const Version* (*version)();
    find(handle, "dnnl_version", version);
    if (version()->major != 3 || version()->minor < 4 || version()->cpu_runtime != kOpenMP) {
      fail("oneDNN " + std::to_string(version()->major) + "." + std::to_string(version()->minor) + " with runtime " +
           std::to_string(version()->cpu_runtime) + " is loaded; wanted: 3.4 or a later 3, with OpenMP");
    }
    check(engine_create(&engine, kCpu, 0), "engine_create");
    check(stream_create(&stream, engine, kInOrder), "stream_create");
  }

  template <typename Function>
  static void find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) fail(std::string("oneDNN has no function ") + name);
  }
};

using Handle = std::unique_ptr<void, int (*)(void*)>;

// An object that a function of the library makes.
template <typename Create, typename... Arguments>
Handle made(const char* name, Create create, int (*destroy)(void*), Arguments... arguments) {
  void* object = nullptr;
  check(create(&object, arguments...), name);
  return Handle(object, destroy);
}

inline Handle described(const Matrix& matrix) {
  const auto& library = Library::get();
  const Dims dims = {matrix.rows, matrix.columns};
  const int type = matrix.is_half ? kBfloat16 : kFloat32;
  if (matrix.order == Order::packed) {
    return made("memory_desc_create_with_tag", library.memory_desc_create_with_tag, library.memory_desc_destroy, 2,
                dims.data(), kBfloat16, kAnyTag);
  }
  const bool by_rows = matrix.order == Order::rows;
  const Dims strides = {by_rows ? matrix.columns : 1, by_rows ? 1 : matrix.rows};
  return made("memory_desc_create_with_strides", library.memory_desc_create_with_strides, library.memory_desc_destroy, 2,
              dims.data(), type, strides.data());
}

inline Handle memory(const void* description) {
  const auto& library = Library::get();
  return made("memory_create", library.memory_create, library.memory_destroy, description, library.engine, static_cast<void*>(nullptr));
}

inline Handle primitive(const Handle& description) {
  const auto& library = Library::get();
  return made("primitive_create", library.primitive_create, library.primitive_destroy, static_cast<const void*>(description.get()));
}

inline void set(const Handle& memory, const void* data) {
  check(Library::get().memory_set_data_handle(memory.get(), const_cast<void*>(data)), "memory_set_data_handle");
}

template <size_t count>
void execute(const Handle& primitive, const std::array<Argument, count>& arguments) {
  const auto& library = Library::get();
  check(library.primitive_execute(primitive.get(), library.stream, count, arguments.data()), "primitive_execute");
}

}  // namespace onednn

inline Matrix result(int64_t rows, int64_t columns) { return {nullptr, rows, columns, Order::rows, false}; }

// The order in which weights [rows, columns] are packed does not depend on the rows of the other factor.
constexpr int64_t kTypicalRows = 64;

inline onednn::Handle product_description(const onednn::Handle& left, const void* right, bool has_bias, int64_t rows, int64_t columns) {
  const auto& library = onednn::Library::get();
  const auto out = onednn::described(result(rows, columns)), bias = onednn::described(result(1, columns));
  return onednn::made("matmul_primitive_desc_create", library.matmul_primitive_desc_create, library.primitive_desc_destroy,
                      library.engine, static_cast<const void*>(left.get()), right,
                      static_cast<const void*>(has_bias ? bias.get() : nullptr), static_cast<const void*>(out.get()),
                      static_cast<const void*>(nullptr));
}

// Converts numbers and brings them into another order.
class Reorder {
 public:
  Reorder(const void* from, const void* to)
      : from_(onednn::memory(from)), to_(onednn::memory(to)), reorder_(onednn::primitive(description(from, to))) {}

  void run(const void* from, void* to) const {
    onednn::set(from_, from);
    onednn::set(to_, to);
    onednn::execute<2>(reorder_, {{{onednn::kSource, from_.get()}, {onednn::kDestination, to_.get()}}});
  }

 private:
  static onednn::Handle description(const void* from, const void* to) {
    const auto& library = onednn::Library::get();
    return onednn::made("reorder_primitive_desc_create", library.reorder_primitive_desc_create, library.primitive_desc_destroy,
                        from, library.engine, to, library.engine, static_cast<const void*>(nullptr));
  }

  onednn::Handle from_, to_, reorder_;
};

// Brings weights into bfloat16 and into the order in which the kernels read them.
class Packing {
 public:
  explicit Packing(const Matrix& weights)
      : typical_(product_description(onednn::described({nullptr, kTypicalRows, weights.rows, Order::rows, true}),
                                     onednn::described({nullptr, weights.rows, weights.columns, Order::packed, true}).get(),
                                     false, kTypicalRows, weights.columns)),
        reorder_(onednn::described(weights).get(), order()) {}

  const void* order() const { return onednn::Library::get().primitive_desc_query_md(typical_.get(), onednn::kWeightsQuery, 0); }
  size_t bytes() const { return onednn::Library::get().memory_desc_get_size(order()); }
  void pack(const void* weights, void* packed) const { reorder_.run(weights, packed); }

 private:
  onednn::Handle typical_;
  Reorder reorder_;
};

// left x right (+ bias) -> float32.
class Product {
 public:
  Product(const Matrix& left, const Matrix& right, const void* order, bool has_bias)
      : left_(onednn::memory(onednn::described(left).get())),
        right_(onednn::memory(order ? order : onednn::described(right).get())),
        bias_(onednn::memory(onednn::described(result(1, right.columns)).get())),
        out_(onednn::memory(onednn::described(result(left.rows, right.columns)).get())),
        primitive_(onednn::primitive(product_description(onednn::described(left),
                                                         order ? order : onednn::described(right).get(), has_bias,
                                                         left.rows, right.columns))) {}

  void multiply(const void* left, const void* right, const float* bias, float* out) const {
    onednn::set(left_, left);
    onednn::set(right_, right);
    onednn::set(out_, out);
    if (bias == nullptr) {
      onednn::execute<3>(primitive_, {{{onednn::kSource, left_.get()}, {onednn::kWeights, right_.get()}, {onednn::kDestination, out_.get()}}});
      return;
    }
    onednn::set(bias_, bias);
    onednn::execute<4>(primitive_, {{{onednn::kSource, left_.get()}, {onednn::kWeights, right_.get()}, {onednn::kBias, bias_.get()}, {onednn::kDestination, out_.get()}}});
  }

 private:
  onednn::Handle left_, right_, bias_, out_, primitive_;
};

// What was made for a shape, for each thread that computes; a server sees many shapes, so all go when there are too many.
template <typename Made, typename Make>
const Made& cached(const std::array<int64_t, 7>& key, Make make) {
  static thread_local std::map<std::array<int64_t, 7>, std::unique_ptr<Made>> all;
  if (all.size() > 1024) all.clear();
  auto& found = all[key];
  if (!found) found = make();
  return *found;
}

inline const Packing& packing(const Matrix& weights) {
  return cached<Packing>({weights.rows, weights.columns, static_cast<int64_t>(weights.order), weights.is_half},
                         [&] { return std::make_unique<Packing>(weights); });
}

// Rounds a float32 matrix to bfloat16.
inline void to_half(const float* from, int64_t rows, int64_t columns, void* to) {
  const auto make = [&] {
    return std::make_unique<Reorder>(onednn::described({nullptr, rows, columns, Order::rows, false}).get(),
                                     onednn::described({nullptr, rows, columns, Order::rows, true}).get());
  };
  cached<Reorder>({rows, columns}, make).run(from, to);
}

// Memory of this thread, which grows to the largest matrix.
struct Scratch {
  void* data = nullptr;
  size_t bytes = 0;

  ~Scratch() { std::free(data); }
  void* of(size_t wanted) {
    if (bytes < wanted) {
      std::free(data);
      bytes = (wanted + 63) / 64 * 64;
      data = std::aligned_alloc(64, bytes);
      if (data == nullptr) throw std::bad_alloc();
    }
    return data;
  }
};

// out [left.rows, right.columns] = left x right + bias [right.columns], if there is one. left: float32 is rounded first;
// right: float32 is packed first.
inline void multiply(Matrix left, Matrix right, const float* bias, float* out) {
  static thread_local Scratch rounded, packed;
  if (!left.is_half) {
    void* const half = rounded.of(2 * left.rows * left.columns);
    const bool by_rows = left.order == Order::rows;
    to_half(static_cast<const float*>(left.data), by_rows ? left.rows : left.columns, by_rows ? left.columns : left.rows, half);
    left.data = half;
    left.is_half = true;
  }
  if (!right.is_half) {
    const auto& packing = products::packing(right);
    void* const weights = packed.of(packing.bytes());
    packing.pack(right.data, weights);
    right = {weights, right.rows, right.columns, Order::packed, true};
  }
  const std::array<int64_t, 7> key = {left.rows, left.columns, right.columns, static_cast<int64_t>(left.order),
                                      static_cast<int64_t>(right.order), bias != nullptr};
  const auto make = [&] {
    const void* order = nullptr;
    if (right.order == Order::packed) order = packing({nullptr, right.rows, right.columns, Order::rows, false}).order();
    return std::make_unique<Product>(left, right, order, bias != nullptr);
  };
  cached<Product>(key, make).multiply(left.data, right.data, bias, out);
}

}  // namespace products

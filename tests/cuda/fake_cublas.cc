// The fake's cuBLAS: products with three nested loops.
#include <bit>
#include <cstdint>
#include <map>

#include "tests/cuda/fake_machine.h"

using muonstore::fake_cuda::Machine;

namespace {

constexpr int kExecutionFailed = 13;
constexpr int kTranspose = 1;
constexpr int kF32 = 0;
constexpr int kBF16 = 14;
constexpr int kComputeF32 = 68;

Machine& The() { return Machine::Instance(); }

struct Handle {
  void* stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

std::map<void*, Handle>& Handles() {
  static std::map<void*, Handle> handles;
  return handles;
}

// A batch of column-major matrices, seen through an operation.
struct Operand {
  const void* data = nullptr;
  int type = kF32;
  bool transposed = false;
  int64_t ld = 0;
  int64_t stride = 0;

  double at(int64_t batch, int64_t row, int64_t col) const {
    const int64_t i =
        batch * stride + (transposed ? col + row * ld : row + col * ld);
    if (type == kF32) return double{static_cast<const float*>(data)[i]};
    const uint16_t bits = static_cast<const uint16_t*>(data)[i];
    return double{std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)};
  }

  size_t Bytes(int64_t rows, int64_t cols, int64_t batch) const {
    const int64_t last = (batch - 1) * stride +
                         ((transposed ? rows : cols) - 1) * ld +
                         (transposed ? cols : rows);
    return static_cast<size_t>(last) * (type == kF32 ? 4 : 2);
  }
};

struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 0;
  float alpha = 1;
  float beta = 0;
  Operand a;
  Operand b;
  Operand c;
};

void Multiply(const Product& product) {
  Machine& machine = The();
  const auto& [m, n, k, batch, alpha, beta, a, b, c] = product;
  if (!machine.RequireDevice(a.data, a.Bytes(m, k, batch), "a product") ||
      !machine.RequireDevice(b.data, b.Bytes(k, n, batch), "a product") ||
      !machine.RequireDevice(c.data, c.Bytes(m, n, batch), "a product")) {
    return;
  }
  auto* out = static_cast<float*>(const_cast<void*>(c.data));
  for (int64_t l = 0; l < batch; ++l) {
    for (int64_t col = 0; col < n; ++col) {
      for (int64_t row = 0; row < m; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += a.at(l, row, i) * b.at(l, i, col);
        float& value = out[l * c.stride + col * c.ld + row];
        const double old = beta == 0 ? 0.0 : double{beta} * double{value};
        value = static_cast<float>(double{alpha} * sum + old);
      }
    }
  }
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  if (The().Fails("cublasCreate")) return kExecutionFailed;
  *handle = The().AddObject("cublas");
  Handles()[*handle] = {};
  return 0;
}

int cublasDestroy_v2(void* handle) {
  Handles().erase(handle);
  if (!The().RemoveObject(handle)) The().Violation("cublasDestroy of nothing");
  return The().Fails("cublasDestroy") ? kExecutionFailed : 0;
}

int cublasSetStream_v2(void* handle, void* stream) {
  if (The().Fails("cublasSetStream")) return kExecutionFailed;
  // As the real one: the workspace is the library's own again.
  Handles()[handle] = {.stream = stream};
  return 0;
}

int cublasSetWorkspace_v2(void* handle, void* workspace, size_t size) {
  if (The().Fails("cublasSetWorkspace")) return kExecutionFailed;
  The().RequireDevice(workspace, size, "cublasSetWorkspace");
  Handles()[handle].workspace = workspace;
  Handles()[handle].workspace_bytes = size;
  return 0;
}

// The interface is cuBLAS's.
// NOLINTNEXTLINE(readability-function-size)
int cublasGemmStridedBatchedEx(void* handle, int op_a, int op_b, int m, int n,
                               int k, const void* alpha, const void* a,
                               int type_a, int lda, long long stride_a,
                               const void* b, int type_b, int ldb,
                               long long stride_b, const void* beta, void* c,
                               int type_c, int ldc, long long stride_c,
                               int batch, int compute, int /*algorithm*/) {
  Machine& machine = The();
  if (machine.Fails("cublasGemmStridedBatchedEx")) return kExecutionFailed;
  if (type_a != type_b || (type_a != kF32 && type_a != kBF16) ||
      type_c != kF32 || compute != kComputeF32 ||
      Handles()[handle].workspace == nullptr) {
    machine.Violation("a product that cuBLAS does not have");
  }
  if (c == a || c == b) machine.Violation("a product into its own operand");
  ++machine.counts().products;
  if (type_a == kBF16) ++machine.counts().bf16_products;
  const Product product = {.m = m,
                           .n = n,
                           .k = k,
                           .batch = batch,
                           .alpha = *static_cast<const float*>(alpha),
                           .beta = *static_cast<const float*>(beta),
                           .a = {a, type_a, op_a == kTranspose, lda, stride_a},
                           .b = {b, type_b, op_b == kTranspose, ldb, stride_b},
                           .c = {c, type_c, false, ldc, stride_c}};
  machine.Put(Handles()[handle].stream, {.run = [=] { Multiply(product); }});
  return 0;
}

const char* cublasGetStatusString(int /*status*/) { return "a fake reason"; }

}  // extern "C"

#include "src/cuda/plugin/newton_schulz_gpu.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::cuda {
namespace {

// As on the host: below this smaller side rounding gains nothing.
constexpr int64_t kMinBF16Side = 48;
constexpr size_t kNumRoundedSteps = 2;
constexpr double kCompatEps = 1e-7;
// cudaMalloc's, which vector loads of cuBLAS ask for.
constexpr uint64_t kAlignment = 256;
// Of sums of squares: a thread adds 64 parts, of which there are up to 4096.
constexpr int64_t kPartsPerSum = 64;
constexpr int64_t kMaxPartSums = 64;
constexpr int64_t kElementsPerPartSum = 65536;
// blockIdx.y has 16 bits.
constexpr int64_t kMaxBatch = 32768;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where a batch's working memory lies; null: not needed.
struct Buffers {
  double* parts = nullptr;
  double* part_sums = nullptr;
  double* sums = nullptr;
  std::byte* x = nullptr;  // Operands: a copy of X, or X rounded to bf16.
  float* r = nullptr;      // n x n.
  std::byte* r_operand = nullptr;
  // Form gram.
  float* q = nullptr;
  float* spare = nullptr;
};

class Carving {
 public:
  explicit Carving(std::byte* begin) : begin_(begin) {}

  template <typename T>
  T* Take(int64_t count, uint64_t element_bytes = sizeof(T)) {
    const uint64_t at = used_;
    const uint64_t size = static_cast<uint64_t>(count) * element_bytes;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + at);
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* begin_;
  uint64_t used_ = 0;
};

Buffers Carve(const GpuPlan& plan, int64_t batch, Carving& carving) {
  const uint64_t operand_bytes = plan.bf16 ? 2 : sizeof(float);
  const int64_t square = batch * plan.n * plan.n;
  Buffers buffers;
  buffers.parts = carving.Take<double>(batch * plan.num_parts);
  buffers.part_sums =
      carving.Take<double>(batch * plan.num_parts / kPartsPerSum);
  buffers.sums = carving.Take<double>(batch);
  buffers.x = carving.Take<std::byte>(batch * plan.elements(), operand_bytes);
  buffers.r = carving.Take<float>(square);
  buffers.r_operand = carving.Take<std::byte>(square, operand_bytes);
  if (plan.gram) {
    buffers.q = carving.Take<float>(square);
    buffers.spare = carving.Take<float>(square);
  }
  return buffers;
}

// Column-major, as cuBLAS has it: op(A) op(B), or B = A.
struct Product {
  int op_a = kBlasN;
  int op_b = kBlasN;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;  // m x n, dense.
  float alpha = 1;
  float beta = 0;
};

// One batch that fits the workspace.
class Iteration {
 public:
  Iteration(const GpuNewtonSchulzParts& parts, const GpuPlan& plan,
            int64_t batch, float* x, const Buffers& buffers)
      : parts_(parts),
        plan_(plan),
        batch_(batch),
        x_(x),
        buffers_(buffers),
        operand_type_(plan.bf16 ? kTypeBF16 : kTypeF32) {}

  void Normalize();
  void RunStandard();
  void RunGram();

 private:
  using Grid = KernelModule::Grid;

  int64_t x_count() const { return batch_ * plan_.elements(); }
  int64_t square_count() const { return batch_ * plan_.n * plan_.n; }

  void Multiply(int type, const Product& product) const;
  // r = X X^T of the operand of X.
  void MultiplyGram() const;
  // X = z X + beta X, of X's operand.
  void MultiplyX(const void* z, float beta) const;
  // c = alpha a b + beta c of n x n matrices that commute.
  void MultiplySquare(int type, const void* a, const void* b, float alpha,
                      float beta, float* c) const;
  // out = a b + f b.
  void MultiplyAdd(const float* a, const float* b, float f, float* out) const;
  void MakeOperand(const float* from, std::byte* to, int64_t count) const;
  void Widen(const std::byte* from, float* to, int64_t count) const;
  void Copy(const float* from, void* to, int64_t count) const;

  const GpuNewtonSchulzParts& parts_;
  const GpuPlan& plan_;
  int64_t batch_;
  float* x_;
  Buffers buffers_;
  int operand_type_;
};

void Iteration::Normalize() {
  const NewtonSchulzOptions& options = parts_.options;
  const KernelModule& kernels = parts_.kernels;
  const auto elements = static_cast<long long>(plan_.elements());
  const auto num_parts = static_cast<long long>(plan_.num_parts);
  const long long part_sums = num_parts / kPartsPerSum;
  kernels.Launch(Kernel::kSumSquares,
                 {.threads = plan_.num_parts, .batch = batch_}, parts_.stream,
                 static_cast<const float*>(x_), elements, buffers_.parts,
                 num_parts);
  kernels.Launch(Kernel::kSumParts, {.threads = batch_ * part_sums},
                 parts_.stream, static_cast<const double*>(buffers_.parts),
                 static_cast<long long>(kPartsPerSum), buffers_.part_sums,
                 static_cast<long long>(batch_ * part_sums));
  kernels.Launch(Kernel::kSumParts, {.threads = batch_}, parts_.stream,
                 static_cast<const double*>(buffers_.part_sums), part_sums,
                 buffers_.sums, static_cast<long long>(batch_));
  const bool compat =
      options.normalization == NewtonSchulzNormalization::kCompat;
  kernels.Launch(Kernel::kNormalize,
                 {.threads = plan_.elements(), .batch = batch_}, parts_.stream,
                 x_, elements, static_cast<const double*>(buffers_.sums),
                 options.coefficients.norm_factor, compat ? kCompatEps : 0.0);
}

void Iteration::Multiply(int type, const Product& product) const {
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  const bool a_transposed = product.op_a == kBlasT;
  const bool b_transposed = product.op_b == kBlasT;
  parts_.api.CheckBlas(
      parts_.api.cublasGemmStridedBatchedEx(
          parts_.blas.handle(), product.op_a, product.op_b, size(product.m),
          size(product.n), size(product.k), &product.alpha, product.a, type,
          size(product.lda),
          product.lda * (a_transposed ? product.m : product.k), product.b, type,
          size(product.ldb),
          product.ldb * (b_transposed ? product.k : product.n), &product.beta,
          product.c, kTypeF32, size(product.m), product.m * product.n,
          size(batch_), kComputeF32, kGemmDefault),
      "cublasGemmStridedBatchedEx");
}

// A row-major matrix is its transpose in columns: with rows as the smaller side
// memory holds X^T, m x n; else X itself, which is worked on transposed.
void Iteration::MultiplyGram() const {
  Product product = {.m = plan_.n,
                     .n = plan_.n,
                     .k = plan_.m,
                     .a = buffers_.x,
                     .b = buffers_.x,
                     .c = buffers_.r};
  product.lda = product.ldb = plan_.wide ? plan_.m : plan_.n;
  (plan_.wide ? product.op_a : product.op_b) = kBlasT;
  Multiply(operand_type_, product);
}

void Iteration::MultiplyX(const void* z, float beta) const {
  Product product = {.m = plan_.n,
                     .n = plan_.m,
                     .k = plan_.n,
                     .a = z,
                     .lda = plan_.n,
                     .b = buffers_.x,
                     .ldb = plan_.n,
                     .c = x_,
                     .beta = beta};
  if (plan_.wide) {
    // X^T z: z is symmetric.
    std::swap(product.m, product.n);
    std::swap(product.a, product.b);
    product.lda = plan_.m;
  }
  Multiply(operand_type_, product);
}

void Iteration::MultiplySquare(int type, const void* a, const void* b,
                               float alpha, float beta, float* c) const {
  Multiply(type, {.m = plan_.n,
                  .n = plan_.n,
                  .k = plan_.n,
                  .a = a,
                  .lda = plan_.n,
                  .b = b,
                  .ldb = plan_.n,
                  .c = c,
                  .alpha = alpha,
                  .beta = beta});
}

void Iteration::MultiplyAdd(const float* a, const float* b, float f,
                            float* out) const {
  Copy(b, out, square_count());
  MultiplySquare(kTypeF32, a, b, 1, f, out);
}

void Iteration::Copy(const float* from, void* to, int64_t count) const {
  parts_.api.Check(parts_.api.cudaMemcpyAsync(
                       to, from, static_cast<size_t>(count) * sizeof(float),
                       kDeviceToDevice, parts_.stream.handle()),
                   "cudaMemcpyAsync");
}

void Iteration::MakeOperand(const float* from, std::byte* to,
                            int64_t count) const {
  if (!plan_.bf16) {
    Copy(from, to, count);
    return;
  }
  parts_.kernels.Launch(Kernel::kRound, {.threads = count}, parts_.stream, from,
                        reinterpret_cast<uint16_t*>(to),
                        static_cast<long long>(count));
}

void Iteration::Widen(const std::byte* from, float* to, int64_t count) const {
  parts_.kernels.Launch(Kernel::kWiden, {.threads = count}, parts_.stream,
                        reinterpret_cast<const uint16_t*>(from), to,
                        static_cast<long long>(count));
}

// X = a X + (b R + c R^2) X with R = X X^T. Both terms of the polynomial, and
// in the last steps both of X, take what was rounded: the step is then exact
// for a nearby matrix.
void Iteration::RunStandard() {
  const std::vector<QuinticStep>& steps = parts_.options.coefficients.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    MakeOperand(x_, buffers_.x, x_count());
    MultiplyGram();
    MakeOperand(buffers_.r, buffers_.r_operand, square_count());
    if (plan_.bf16) Widen(buffers_.r_operand, buffers_.r, square_count());
    MultiplySquare(operand_type_, buffers_.r_operand, buffers_.r_operand,
                   static_cast<float>(steps[i].c),
                   static_cast<float>(steps[i].b), buffers_.r);
    const void* z = buffers_.r;
    if (plan_.bf16) {
      MakeOperand(buffers_.r, buffers_.r_operand, square_count());
      z = buffers_.r_operand;
      if (i + kNumRoundedSteps >= steps.size()) {
        Widen(buffers_.x, x_, x_count());
      }
    }
    MultiplyX(z, static_cast<float>(steps[i].a));
  }
}

// R and the product Q of all a I + Z are iterated; X is multiplied once. The
// a I stays apart from Z = b R + c R^2, which it would round away.
void Iteration::RunGram() {
  const std::vector<QuinticStep>& steps = parts_.options.coefficients.steps;
  auto* z = reinterpret_cast<float*>(buffers_.r_operand);
  MakeOperand(x_, buffers_.x, x_count());
  MultiplyGram();
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto a = static_cast<float>(steps[i].a);
    Copy(buffers_.r, z, square_count());
    MultiplySquare(kTypeF32, buffers_.r, buffers_.r,
                   static_cast<float>(steps[i].c),
                   static_cast<float>(steps[i].b), z);
    if (i == 0) {
      Copy(z, buffers_.q, square_count());
      parts_.kernels.Launch(
          Kernel::kAddToDiagonal, {.threads = plan_.n, .batch = batch_},
          parts_.stream, buffers_.q, static_cast<long long>(plan_.n), a);
    } else {
      MultiplyAdd(z, buffers_.q, a, buffers_.spare);
      std::swap(buffers_.q, buffers_.spare);
    }
    if (i + 1 < steps.size()) {
      MultiplyAdd(z, buffers_.r, a, buffers_.spare);
      MultiplyAdd(z, buffers_.spare, a, buffers_.r);
    }
  }
  MultiplyX(buffers_.q, 0);
}

}  // namespace

GpuPlan MakeGpuPlan(const NewtonSchulzOptions& options, int64_t rows,
                    int64_t cols) {
  GpuPlan plan{.n = std::min(rows, cols),
               .m = std::max(rows, cols),
               .wide = rows <= cols};
  if (plan.m > std::numeric_limits<int>::max()) {
    throw Error(ErrorCode::kUnsupported,
                "a matrix has a side beyond cuBLAS's 32-bit numbers",
                {.found = StrCat(rows, " x ", cols)});
  }
  plan.bf16 = options.precision == NewtonSchulzPrecision::kBF16 &&
              plan.n >= kMinBF16Side;
  // Whole products: 20 n^2 m + 10 n^3 against 4 n^2 m + 34 n^3.
  const bool gram_pays = !plan.bf16 && 2 * plan.m > 3 * plan.n;
  plan.gram = plan.m > plan.n &&
              (options.form == NewtonSchulzForm::kGram ||
               (options.form == NewtonSchulzForm::kAuto && gram_pays));
  plan.num_parts =
      kPartsPerSum *
      std::clamp<int64_t>(CeilDiv(plan.elements(), kElementsPerPartSum), 1,
                          kMaxPartSums);
  return plan;
}

uint64_t GpuWorkspaceBytes(const GpuPlan& plan, int64_t batch) {
  Carving carving(nullptr);
  static_cast<void>(Carve(plan, batch, carving));
  return carving.used();
}

void EnqueueNewtonSchulz(const GpuNewtonSchulzParts& parts, float* x,
                         const DeviceMatrices& matrices,
                         std::span<std::byte> workspace,
                         std::span<double> sums) {
  const GpuPlan plan = MakeGpuPlan(parts.options, matrices.rows, matrices.cols);
  if (plan.elements() == 0) return;
  int64_t batch = std::min(matrices.batch, kMaxBatch);
  while (batch > 1 && GpuWorkspaceBytes(plan, batch) > workspace.size()) {
    batch = (batch + 1) / 2;
  }
  for (int64_t first = 0; first < matrices.batch; first += batch) {
    const int64_t count = std::min(batch, matrices.batch - first);
    Carving carving(workspace.data());
    const Buffers buffers = Carve(plan, count, carving);
    Iteration iteration(parts, plan, count, x + first * plan.elements(),
                        buffers);
    iteration.Normalize();
    parts.api.Check(
        parts.api.cudaMemcpyAsync(sums.data() + first, buffers.sums,
                                  static_cast<size_t>(count) * sizeof(double),
                                  kDeviceToHost, parts.stream.handle()),
        "cudaMemcpyAsync");
    if (plan.gram) {
      iteration.RunGram();
    } else {
      iteration.RunStandard();
    }
  }
}

}  // namespace muonstore::cuda

#include <algorithm>
#include <utility>

#include "src/kernel/newton_schulz_iteration.h"
#include "src/kernel/symmetric_product.h"

namespace muonstore {
namespace {

class F32Iteration {
 public:
  explicit F32Iteration(const NewtonSchulzParts& parts)
      : plan_(parts.plan),
        matrix_(parts.matrix),
        work_(parts.work),
        gemm_(parts.gemm),
        team_(parts.team),
        buffers_(parts.work.buffers) {}

  void Load();
  void StandardStep(const FloatStep& step, bool last);
  void RunGram(const std::vector<QuinticStep>& steps);

 private:
  void ClearPadding();

  Range2d Panel(int64_t index) const {
    const int64_t begin = index * plan_.panel_cols;
    return {0, plan_.n, begin, std::min(plan_.m, begin + plan_.panel_cols)};
  }

  // A part of a matrix that has X's shape.
  template <typename T>
  Block<T> PartOfX(T* x, const Range2d& range) const {
    return {x + range.row_begin * plan_.ld_x + range.col_begin, plan_.ld_x,
            range.rows(), range.cols()};
  }

  // A part of an n x n matrix.
  template <typename T>
  Block<T> PartOfN(T* matrix, const Range2d& range) const {
    return {matrix + range.row_begin * plan_.ld_n + range.col_begin, plan_.ld_n,
            range.rows(), range.cols()};
  }

  TilePlace InMatrix(float* matrix) const {
    return
        [this, matrix](const Range2d& range) { return PartOfN(matrix, range); };
  }

  // out = a * b + factor * base for commuting symmetric n x n matrices.
  void MultiplyAdd(const float* a, const float* b, float factor,
                   const float* base, float* out);
  // The same without use of the symmetry.
  void MultiplyAddWhole(const float* a, const float* b, float factor,
                        const float* base, float* out);
  // The Gram matrix of X in buffers_.gram.
  void ComputeGram();
  // buffers_.polynomial = Z = b R + c R^2 of the Gram matrix R.
  void ComputePolynomial(const FloatStep& step);
  // buffers_.product = a I + Z.
  void StartProduct(float a);
  // Calls body(panel, product) for each panel of `left` * X.
  void ForEachPanel(
      const float* left,
      const std::function<void(const Range2d&, const Block<float>&)>& body);
  // The result's part for a panel of X.
  void StoreResult(const Range2d& panel, const Block<float>& result) const;

  const NewtonSchulzPlan& plan_;
  const NewtonSchulzMatrix& matrix_;
  const NewtonSchulzWork& work_;
  const Gemm& gemm_;
  Team& team_;
  NewtonSchulzBuffers buffers_;
};

void F32Iteration::ClearPadding() {
  const Block<float> x =
      PartOfX(buffers_.x, {plan_.num_rows, plan_.n, 0, plan_.m});
  std::fill_n(x.data, x.rows * x.ld, 0.0F);
}

void F32Iteration::Load() {
  ClearPadding();
  const Block<const float>& in = matrix_.in;
  // Rows of the input, so that they are read as they lie.
  const int64_t num_rows = std::max<int64_t>(16, 65536 / in.cols / 16 * 16);
  const int64_t num_tasks = (in.rows + num_rows - 1) / num_rows;
  team_.Run(num_tasks, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * num_rows;
    const int64_t end = std::min(in.rows, begin + num_rows);
    const Block<const float> part = {in.data + begin * in.ld, in.ld,
                                     end - begin, in.cols};
    const Range2d range = plan_.transposed
                              ? Range2d{0, plan_.num_rows, begin, end}
                              : Range2d{begin, end, 0, plan_.m};
    const Block<float> x = PartOfX(buffers_.x, range);
    if (plan_.transposed) {
      ScaleTransposedInto(part, matrix_.scale, x.data, x.ld);
    } else {
      ScaleInto(part, matrix_.scale, x.data, x.ld);
    }
  });
}

void F32Iteration::MultiplyAdd(const float* a, const float* b, float factor,
                               const float* base, float* out) {
  const SymmetricFactors factors = {
      .a = a, .b = b, .ld_a = plan_.ld_n, .ld_b = plan_.ld_n, .k = plan_.n};
  MultiplyTriangle(plan_, gemm_, factors, team_, InMatrix(out),
                   [&](const Range2d& range, const Block<float>& tile) {
                     AddScaledTo(tile, PartOfN(base, range).data, plan_.ld_n,
                                 factor);
                     MirrorRange(range, out, plan_.ld_n);
                   });
}

void F32Iteration::MultiplyAddWhole(const float* a, const float* b,
                                    float factor, const float* base,
                                    float* out) {
  team_.Run(plan_.num_whole_tasks(), [&](int64_t task, int /*worker*/) {
    const Range2d range = plan_.WholeTask(task);
    const Block<float> tile = PartOfN(out, range);
    gemm_.Multiply(GemmCall{.m = range.rows(),
                            .n = range.cols(),
                            .k = plan_.n,
                            .a = a + range.row_begin * plan_.ld_n,
                            .lda = plan_.ld_n,
                            .b = b + range.col_begin,
                            .ldb = plan_.ld_n,
                            .c = tile.data,
                            .ldc = tile.ld});
    AddScaledTo(tile, PartOfN(base, range).data, plan_.ld_n, factor);
  });
}

void F32Iteration::ComputeGram() {
  float* gram = buffers_.gram;
  const SymmetricFactors factors = {.a = buffers_.x,
                                    .b = buffers_.x,
                                    .ld_a = plan_.ld_x,
                                    .ld_b = plan_.ld_x,
                                    .k = plan_.m,
                                    .b_transposed = true};
  MultiplyTriangle(plan_, gemm_, factors, team_, InMatrix(gram),
                   [&](const Range2d& range, const Block<float>& /*tile*/) {
                     MirrorRange(range, gram, plan_.ld_n);
                   });
}

void F32Iteration::ComputePolynomial(const FloatStep& step) {
  const float* gram = buffers_.gram;
  float* polynomial = buffers_.polynomial;
  const SymmetricFactors factors = {.a = gram,
                                    .b = gram,
                                    .ld_a = plan_.ld_n,
                                    .ld_b = plan_.ld_n,
                                    .k = plan_.n};
  MultiplyTriangle(plan_, gemm_, factors, team_, InMatrix(polynomial),
                   [&](const Range2d& range, const Block<float>& tile) {
                     CombineSquare(tile, PartOfN(gram, range).data, plan_.ld_n,
                                   step.b, step.c);
                     MirrorRange(range, polynomial, plan_.ld_n);
                   });
}

void F32Iteration::ForEachPanel(
    const float* left,
    const std::function<void(const Range2d&, const Block<float>&)>& body) {
  team_.Run(plan_.num_panels(), [&](int64_t task, int worker) {
    const Range2d panel = Panel(task);
    const Block<float> product = {
        CarveScratch(plan_, work_.scratch(worker)).tile, plan_.panel_cols,
        plan_.n, panel.cols()};
    gemm_.Multiply(GemmCall{.m = plan_.n,
                            .n = panel.cols(),
                            .k = plan_.n,
                            .a = left,
                            .lda = plan_.ld_n,
                            .b = buffers_.x + panel.col_begin,
                            .ldb = plan_.ld_x,
                            .c = product.data,
                            .ldc = product.ld});
    body(panel, product);
  });
}

void F32Iteration::StoreResult(const Range2d& panel,
                               const Block<float>& result) const {
  const Block<const float> from = {result.data, result.ld, plan_.num_rows,
                                   result.cols};
  const Block<float>& out = matrix_.out;
  if (plan_.transposed) {
    TransposeInto(from, out.data + panel.col_begin * out.ld, out.ld);
  } else {
    CopyInto(from, out.data + panel.col_begin, out.ld);
  }
}

void F32Iteration::StandardStep(const FloatStep& step, bool last) {
  ComputeGram();
  ComputePolynomial(step);
  ForEachPanel(buffers_.polynomial,
               [&](const Range2d& panel, const Block<float>& product) {
                 const Block<float> x = PartOfX(buffers_.x, panel);
                 if (last) {
                   AddScaledTo(product, x.data, x.ld, step.a);
                   StoreResult(panel, product);
                 } else {
                   AddScaled(x, product.data, product.ld, step.a);
                 }
               });
}

void F32Iteration::StartProduct(float a) {
  constexpr int64_t kRows = 64;
  team_.Run((plan_.n + kRows - 1) / kRows, [&](int64_t task, int /*worker*/) {
    const Range2d range = {task * kRows, std::min(plan_.n, (task + 1) * kRows),
                           0, plan_.n};
    const Block<float> out = PartOfN(buffers_.product, range);
    const Block<float> z = PartOfN(buffers_.polynomial, range);
    CopyInto({z.data, z.ld, z.rows, z.cols}, out.data, out.ld);
    for (int64_t i = 0; i < out.rows; ++i) {
      out.data[i * out.ld + range.row_begin + i] += a;
    }
  });
}

// A step is X = (a I + Z) X with Z = b R + c R^2 of R = X X^T, so that R itself
// becomes (a I + Z) R (a I + Z). Q collects the products of all a I + Z and is
// applied to X once. The a I is kept apart: added to Z, it would round Z away.
// Of an error of Z between X's range and its null space, the half that Q's
// large values in the null space magnify does not reach X. Mirroring mixes the
// halves, so the last products into Q are computed whole.
void F32Iteration::RunGram(const std::vector<QuinticStep>& steps) {
  ComputeGram();
  for (size_t i = 0; i < steps.size(); ++i) {
    const FloatStep step = Rounded(steps[i]);
    ComputePolynomial(step);
    const float* z = buffers_.polynomial;
    if (i == 0) {
      StartProduct(step.a);
    } else {
      const float* q = buffers_.product;
      if (i + kNumWholeProducts < steps.size()) {
        MultiplyAdd(z, q, step.a, q, buffers_.spare);
      } else {
        MultiplyAddWhole(z, q, step.a, q, buffers_.spare);
      }
      std::swap(buffers_.product, buffers_.spare);
    }
    if (i + 1 < steps.size()) {
      MultiplyAdd(z, buffers_.gram, step.a, buffers_.gram, buffers_.spare);
      MultiplyAdd(z, buffers_.spare, step.a, buffers_.spare, buffers_.gram);
    }
  }
  ForEachPanel(buffers_.product,
               [&](const Range2d& panel, const Block<float>& result) {
                 StoreResult(panel, result);
               });
}

}  // namespace

void RunF32NewtonSchulz(const NewtonSchulzParts& parts,
                        const std::vector<QuinticStep>& steps) {
  F32Iteration iteration(parts);
  iteration.Load();
  if (parts.plan.gram) {
    iteration.RunGram(steps);
    return;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    iteration.StandardStep(Rounded(steps[i]), i + 1 == steps.size());
  }
}

}  // namespace muonstore

#include "src/kernel/newton_schulz_iteration.h"

#include <algorithm>
#include <utility>

#include "src/kernel/symmetric_product.h"

namespace muonstore {
namespace {

// A step's coefficients as the products use them.
struct Step {
  float a;
  float b;
  float c;
};

Step Rounded(const QuinticStep& step) {
  return {static_cast<float>(step.a), static_cast<float>(step.b),
          static_cast<float>(step.c)};
}

class Iteration {
 public:
  Iteration(const NewtonSchulzPlan& plan, const NewtonSchulzMatrix& matrix,
            const NewtonSchulzWork& work, const Gemm& gemm, Team& team)
      : plan_(plan),
        matrix_(matrix),
        work_(work),
        gemm_(gemm),
        team_(team),
        buffers_(work.buffers) {}

  void Load();
  void StandardStep(const Step& step, bool last);
  void StandardStepBF16(const Step& step, bool last);
  void RunGram(const std::vector<QuinticStep>& steps);

 private:
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
    return [this, matrix](const Range2d& range, int /*worker*/) {
      return PartOfN(matrix, range);
    };
  }

  TilePlace InScratch() const {
    return [this](const Range2d& range, int worker) {
      return Block<float>{work_.scratch(worker), range.cols(), range.rows(),
                          range.cols()};
    };
  }

  // out = a * b for commuting symmetric n x n matrices.
  void MultiplySymmetric(const float* a, const float* b, float* out);
  // The Gram matrix of X in buffers_.gram.
  void ComputeGram();
  // buffers_.polynomial = b R + c R^2 of the Gram matrix R; with `a` also + a
  // I.
  void ComputePolynomial(const Step& step, float a);
  // Rounds a range of an n x n matrix that is below the diagonal, and mirrors.
  void RoundSymmetric(const Range2d& range, const Block<float>& tile,
                      BF16* out) const;

  // Calls body(panel, product) for each panel of `left` * X.
  template <typename T>
  void ForEachPanel(
      const T* left, const T* x,
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

void Iteration::Load() {
  const Block<const float>& in = matrix_.in;
  // Rows of the input, so that they are read as they lie.
  const int64_t num_rows = std::max<int64_t>(16, 65536 / in.cols / 16 * 16);
  const int64_t num_tasks = (in.rows + num_rows - 1) / num_rows;
  team_.Run(num_tasks, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * num_rows;
    const int64_t end = std::min(in.rows, begin + num_rows);
    const Block<const float> part = {in.data + begin * in.ld, in.ld,
                                     end - begin, in.cols};
    const Range2d range = plan_.transposed ? Range2d{0, plan_.n, begin, end}
                                           : Range2d{begin, end, 0, plan_.m};
    const Block<float> x = PartOfX(buffers_.x, range);
    if (plan_.transposed) {
      ScaleTransposedInto(part, matrix_.scale, x.data, x.ld);
    } else {
      ScaleInto(part, matrix_.scale, x.data, x.ld);
    }
    if (plan_.bf16) {
      RoundInto({x.data, x.ld, x.rows, x.cols},
                PartOfX(buffers_.x_bf16, range).data, plan_.ld_x);
    }
  });
}

void Iteration::MultiplySymmetric(const float* a, const float* b, float* out) {
  const SymmetricFactors<float> factors = {
      .a = a, .b = b, .ld_a = plan_.ld_n, .ld_b = plan_.ld_n, .k = plan_.n};
  MultiplyTriangle(plan_, gemm_, factors, team_, InMatrix(out),
                   [&](const Range2d& range, const Block<float>& /*tile*/) {
                     MirrorRange(range, out, plan_.ld_n);
                   });
}

void Iteration::ComputeGram() {
  float* gram = buffers_.gram;
  const SymmetricFactors<float> factors = {.a = buffers_.x,
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

void Iteration::ComputePolynomial(const Step& step, float a) {
  const float* gram = buffers_.gram;
  float* polynomial = buffers_.polynomial;
  const SymmetricFactors<float> factors = {.a = gram,
                                           .b = gram,
                                           .ld_a = plan_.ld_n,
                                           .ld_b = plan_.ld_n,
                                           .k = plan_.n};
  MultiplyTriangle(plan_, gemm_, factors, team_, InMatrix(polynomial),
                   [&](const Range2d& range, const Block<float>& tile) {
                     CombineSquare(tile, PartOfN(gram, range).data, plan_.ld_n,
                                   step.b, step.c);
                     const int64_t end = std::min(range.row_end, range.col_end);
                     for (int64_t i = range.row_begin; i < end; ++i) {
                       polynomial[i * plan_.ld_n + i] += a;
                     }
                     MirrorRange(range, polynomial, plan_.ld_n);
                   });
}

template <typename T>
void Iteration::ForEachPanel(
    const T* left, const T* x,
    const std::function<void(const Range2d&, const Block<float>&)>& body) {
  team_.Run(plan_.num_panels(), [&](int64_t task, int worker) {
    const Range2d panel = Panel(task);
    const Block<float> product = {work_.scratch(worker), plan_.panel_cols,
                                  plan_.n, panel.cols()};
    gemm_.Multiply(GemmCall<T>{.m = plan_.n,
                               .n = panel.cols(),
                               .k = plan_.n,
                               .a = left,
                               .lda = plan_.ld_n,
                               .b = x + panel.col_begin,
                               .ldb = plan_.ld_x,
                               .c = product.data,
                               .ldc = product.ld});
    body(panel, product);
  });
}

void Iteration::StoreResult(const Range2d& panel,
                            const Block<float>& result) const {
  const Block<const float> from = {result.data, result.ld, result.rows,
                                   result.cols};
  const Block<float>& out = matrix_.out;
  if (plan_.transposed) {
    TransposeInto(from, out.data + panel.col_begin * out.ld, out.ld);
  } else {
    CopyInto(from, out.data + panel.col_begin, out.ld);
  }
}

void Iteration::StandardStep(const Step& step, bool last) {
  ComputeGram();
  ComputePolynomial(step, 0);
  ForEachPanel(buffers_.polynomial, static_cast<const float*>(buffers_.x),
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

void Iteration::RoundSymmetric(const Range2d& range, const Block<float>& tile,
                               BF16* out) const {
  RoundInto({tile.data, tile.ld, tile.rows, tile.cols},
            PartOfN(out, range).data, plan_.ld_n);
  MirrorRange(range, out, plan_.ld_n);
}

void Iteration::StandardStepBF16(const Step& step, bool last) {
  const SymmetricFactors<BF16> x_factors = {.a = buffers_.x_bf16,
                                            .b = buffers_.x_bf16,
                                            .ld_a = plan_.ld_x,
                                            .ld_b = plan_.ld_x,
                                            .k = plan_.m,
                                            .b_transposed = true};
  MultiplyTriangle(plan_, gemm_, x_factors, team_, InMatrix(buffers_.gram),
                   [&](const Range2d& range, const Block<float>& tile) {
                     RoundSymmetric(range, tile, buffers_.gram_bf16);
                   });
  const SymmetricFactors<BF16> gram_factors = {.a = buffers_.gram_bf16,
                                               .b = buffers_.gram_bf16,
                                               .ld_a = plan_.ld_n,
                                               .ld_b = plan_.ld_n,
                                               .k = plan_.n};
  MultiplyTriangle(plan_, gemm_, gram_factors, team_, InScratch(),
                   [&](const Range2d& range, const Block<float>& tile) {
                     CombineSquare(tile, PartOfN(buffers_.gram, range).data,
                                   plan_.ld_n, step.b, step.c);
                     RoundSymmetric(range, tile, buffers_.polynomial_bf16);
                   });
  ForEachPanel(static_cast<const BF16*>(buffers_.polynomial_bf16),
               static_cast<const BF16*>(buffers_.x_bf16),
               [&](const Range2d& panel, const Block<float>& product) {
                 const Block<float> x = PartOfX(buffers_.x, panel);
                 if (last) {
                   AddScaledTo(product, x.data, x.ld, step.a);
                   StoreResult(panel, product);
                 } else {
                   AddScaled(x, product.data, product.ld, step.a);
                   RoundInto({x.data, x.ld, x.rows, x.cols},
                             PartOfX(buffers_.x_bf16, panel).data, plan_.ld_x);
                 }
               });
}

// With P = a I + b R + c R^2 a step is X = P X, so that R = X X^T becomes
// P R P, and the product of all P is applied to X once.
void Iteration::RunGram(const std::vector<QuinticStep>& steps) {
  ComputeGram();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step step = Rounded(steps[i]);
    ComputePolynomial(step, step.a);
    if (i == 0) {
      team_.Run(1, [&](int64_t /*task*/, int /*worker*/) {
        CopyInto({buffers_.polynomial, plan_.ld_n, plan_.n, plan_.n},
                 buffers_.product, plan_.ld_n);
      });
    } else {
      MultiplySymmetric(buffers_.product, buffers_.polynomial, buffers_.spare);
      std::swap(buffers_.product, buffers_.spare);
    }
    if (i + 1 < steps.size()) {
      MultiplySymmetric(buffers_.gram, buffers_.polynomial, buffers_.spare);
      MultiplySymmetric(buffers_.polynomial, buffers_.spare, buffers_.gram);
    }
  }
  ForEachPanel(static_cast<const float*>(buffers_.product),
               static_cast<const float*>(buffers_.x),
               [&](const Range2d& panel, const Block<float>& result) {
                 StoreResult(panel, result);
               });
}

}  // namespace

void RunNewtonSchulz(const NewtonSchulzPlan& plan,
                     const std::vector<QuinticStep>& steps,
                     const NewtonSchulzMatrix& matrix,
                     const NewtonSchulzWork& work, const Gemm& gemm,
                     Team& team) {
  Iteration iteration(plan, matrix, work, gemm, team);
  iteration.Load();
  if (plan.gram) {
    iteration.RunGram(steps);
    return;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step step = Rounded(steps[i]);
    const bool last = i + 1 == steps.size();
    if (plan.bf16) {
      iteration.StandardStepBF16(step, last);
    } else {
      iteration.StandardStep(step, last);
    }
  }
}

}  // namespace muonstore

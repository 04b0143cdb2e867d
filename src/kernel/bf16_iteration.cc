// The standard form with bf16 operands.
//
// X stays f32 while what rounding adds to it would still grow by several steps'
// a. In the last two steps the rounded X serves both terms of a step, which is
// then exact for a nearby matrix; that error is the smaller one by then.
//
// X is kept in halves (split_float.h), the n x n matrices in bf16, all in
// panels. A task copies one operand of its product into the packed order while
// it is in the cache, multiplies panel by panel, and finishes the result before
// it leaves the cache.
#include <algorithm>

#include "src/kernel/newton_schulz_iteration.h"
#include "src/kernel/packing.h"
#include "src/kernel/split_float.h"

namespace muonstore {
namespace {

class Bf16Iteration {
 public:
  explicit Bf16Iteration(const NewtonSchulzParts& parts)
      : plan_(parts.plan),
        matrix_(parts.matrix),
        work_(parts.work),
        gemm_(parts.gemm),
        team_(parts.team),
        buffers_(parts.work.buffers) {}

  void Load();
  // `num_left` steps follow.
  void Run(const FloatStep& step, size_t num_left);

 private:
  // The columns of X that task `index` works on, in all rows.
  Range2d XBlock(int64_t index) const;
  int64_t num_x_blocks() const {
    const Panels& panels = plan_.x_panels;
    return (panels.count() - 1) * blocks_a_panel() +
           (panels.width_of(panels.count() - 1) + plan_.panel_cols - 1) /
               plan_.panel_cols;
  }
  int64_t blocks_a_panel() const {
    return (plan_.x_panels.width + plan_.panel_cols - 1) / plan_.panel_cols;
  }
  // Calls body(range) for the parts of an XBlock that one call multiplies.
  template <typename Body>
  void ForEachPart(const Range2d& block, const Body& body) const {
    for (int64_t row = 0; row < plan_.n; row += kBF16Rows) {
      body(Range2d{row, std::min(plan_.n, row + kBF16Rows), block.col_begin,
                   block.col_end});
    }
  }

  // What of a range is not padding.
  Range2d Inside(const Range2d& range) const {
    return {range.row_begin,
            std::clamp(plan_.num_rows, range.row_begin, range.row_end),
            range.col_begin,
            std::clamp(plan_.m, range.col_begin, range.col_end)};
  }
  NewtonSchulzScratch Scratch(int worker) const {
    return CarveScratch(plan_, work_.scratch(worker));
  }
  SplitBlock XPart(const Range2d& range) const {
    const int64_t offset =
        plan_.x_panels.Offset(range.row_begin, range.col_begin);
    return {buffers_.x_upper + offset, buffers_.x_lower + offset,
            plan_.x_panels.ld(range.col_begin)};
  }

  // Calls epilogue(range, tile) with the parts of M M^T on and below the
  // diagonal, M being n x k in panels.
  template <typename Epilogue>
  void MultiplyTriangle(const Panels& panels, const BF16* matrix,
                        const Epilogue& epilogue);
  // Rounds a part of a symmetric n x n matrix to its place and its mirror's.
  void RoundSymmetric(const Range2d& range, const Block<float>& tile,
                      BF16* out) const;
  void ComputeGram();
  // buffers_.polynomial_bf16 = b R + c R^2 of the Gram matrix R.
  void ComputePolynomial(const FloatStep& step);

  void LoadPart(const Range2d& range, float* tile) const;
  // The block of X as an operand that the polynomial multiplies.
  void Pack(const Range2d& block, BF16* packed) const;
  // X's part = a X + product, or the result's in the last step.
  void FinishPart(const Range2d& range, const Block<float>& product, float a,
                  size_t num_left) const;
  void StoreResult(const Range2d& range, const Block<float>& product,
                   float a) const;

  const NewtonSchulzPlan& plan_;
  const NewtonSchulzMatrix& matrix_;
  const NewtonSchulzWork& work_;
  const Gemm& gemm_;
  Team& team_;
  NewtonSchulzBuffers buffers_;
};

Block<const float> Const(const Block<float>& block) {
  return {block.data, block.ld, block.rows, block.cols};
}

Range2d Bf16Iteration::XBlock(int64_t index) const {
  const Panels& panels = plan_.x_panels;
  const int64_t panel = index / blocks_a_panel();
  const int64_t begin = index % blocks_a_panel() * plan_.panel_cols;
  const int64_t end =
      std::min(begin + plan_.panel_cols, panels.width_of(panel));
  return {0, plan_.n, panels.begin(panel) + begin, panels.begin(panel) + end};
}

void Bf16Iteration::LoadPart(const Range2d& range, float* tile) const {
  const Range2d inside = Inside(range);
  const SplitBlock x = XPart(range);
  if (inside.rows() < range.rows() || inside.cols() < range.cols()) {
    std::fill_n(tile, range.cols(), 0.0F);
    const Block<const float> zeros = {tile, 0, range.rows(), range.cols()};
    ScaleSplitInto(zeros, 0, x);
  }
  const Block<const float>& in = matrix_.in;
  if (plan_.transposed) {
    TransposeInto({in.data + range.col_begin * in.ld + range.row_begin, in.ld,
                   inside.cols(), inside.rows()},
                  tile, inside.cols());
    ScaleSplitInto({tile, inside.cols(), inside.rows(), inside.cols()},
                   matrix_.scale, x);
  } else {
    ScaleSplitInto({in.data + range.row_begin * in.ld + range.col_begin, in.ld,
                    inside.rows(), inside.cols()},
                   matrix_.scale, x);
  }
}

void Bf16Iteration::Load() {
  team_.Run(num_x_blocks(), [&](int64_t task, int worker) {
    ForEachPart(XBlock(task), [&](const Range2d& range) {
      LoadPart(range, Scratch(worker).tile);
    });
  });
}

template <typename Epilogue>
void Bf16Iteration::MultiplyTriangle(const Panels& panels, const BF16* matrix,
                                     const Epilogue& epilogue) {
  const auto num_tasks = static_cast<int64_t>(plan_.triangle.size());
  team_.Run(num_tasks, [&](int64_t task, int worker) {
    const Range2d& range = plan_.triangle[static_cast<size_t>(task)];
    const NewtonSchulzScratch scratch = Scratch(worker);
    const auto tile_of = [&](const Range2d& part) {
      const int64_t row = part.row_begin - range.row_begin;
      return Block<float>{scratch.tile + row * range.cols(), part.cols(),
                          part.rows(), part.cols()};
    };
    for (int64_t p = 0; p < panels.count(); ++p) {
      const int64_t begin = panels.begin(p);
      const int64_t width = panels.width_of(p);
      PackTransposed({matrix + panels.Offset(range.col_begin, begin), width,
                      range.cols(), width},
                     scratch.packed);
      ForEachTrianglePart(range, [&](const Range2d& part) {
        gemm_.Multiply(
            PackedGemmCall{.m = part.rows(),
                           .n = part.cols(),
                           .k = width,
                           .a = matrix + panels.Offset(part.row_begin, begin),
                           .packed_b = scratch.packed,
                           .c = tile_of(part).data,
                           .accumulate = p > 0});
      });
    }
    ForEachTrianglePart(
        range, [&](const Range2d& part) { epilogue(part, tile_of(part)); });
  });
}

void Bf16Iteration::RoundSymmetric(const Range2d& range,
                                   const Block<float>& tile, BF16* out) const {
  if (range.row_end == range.col_end) {
    const int64_t begin = range.row_begin - range.col_begin;
    MirrorSquare({tile.data + begin, tile.ld, range.rows(), range.rows()});
  }
  const Panels& panels = plan_.n_panels;
  RoundInto(Const(tile), out + panels.Offset(range.row_begin, range.col_begin),
            panels.ld(range.col_begin));
  RoundTransposedInto(Const(tile),
                      out + panels.Offset(range.col_begin, range.row_begin),
                      panels.ld(range.row_begin));
}

void Bf16Iteration::ComputeGram() {
  MultiplyTriangle(plan_.x_panels, buffers_.x_upper,
                   [&](const Range2d& range, const Block<float>& tile) {
                     RoundSymmetric(range, tile, buffers_.gram_bf16);
                   });
}

// Both terms take the rounded Gram matrix: the polynomial is then the exact one
// of a nearby matrix.
void Bf16Iteration::ComputePolynomial(const FloatStep& step) {
  const Panels& panels = plan_.n_panels;
  const BF16* gram = buffers_.gram_bf16;
  MultiplyTriangle(
      panels, gram, [&](const Range2d& range, const Block<float>& tile) {
        CombineSquare(tile,
                      gram + panels.Offset(range.row_begin, range.col_begin),
                      panels.ld(range.col_begin), step.b, step.c);
        RoundSymmetric(range, tile, buffers_.polynomial_bf16);
      });
}

void Bf16Iteration::Pack(const Range2d& block, BF16* packed) const {
  const Panels& panels = plan_.n_panels;
  for (int64_t p = 0; p < panels.count(); ++p) {
    const int64_t begin = panels.begin(p);
    const SplitBlock x = XPart(
        {begin, begin + panels.width_of(p), block.col_begin, block.col_end});
    PackRows({x.upper, x.ld, panels.width_of(p), block.cols()},
             packed + PackedSize(begin, block.cols()));
  }
}

void Bf16Iteration::FinishPart(const Range2d& range,
                               const Block<float>& product, float a,
                               size_t num_left) const {
  const SplitBlock x = XPart(range);
  if (num_left >= kNumRoundedSteps) {
    AddScaledSplit(x, Const(product), a);
  } else if (num_left > 0) {
    AddScaledTo(product, x.upper, x.ld, a);
    RoundInto(Const(product), x.upper, x.ld);
  } else {
    StoreResult(range, product, a);
  }
}

void Bf16Iteration::StoreResult(const Range2d& range,
                                const Block<float>& product, float a) const {
  const Range2d inside = Inside(range);
  const SplitBlock x = XPart(range);
  const Block<float> result = {product.data, product.ld, inside.rows(),
                               inside.cols()};
  const Block<float>& out = matrix_.out;
  if (plan_.transposed) {
    AddScaledTo(result, x.upper, x.ld, a);
    TransposeInto(Const(result),
                  out.data + range.col_begin * out.ld + range.row_begin,
                  out.ld);
  } else {
    AddScaledInto(Const(result), x.upper, x.ld, a,
                  out.data + range.row_begin * out.ld + range.col_begin,
                  out.ld);
  }
}

void Bf16Iteration::Run(const FloatStep& step, size_t num_left) {
  ComputeGram();
  ComputePolynomial(step);
  const Panels& panels = plan_.n_panels;
  const BF16* z = buffers_.polynomial_bf16;
  team_.Run(num_x_blocks(), [&](int64_t task, int worker) {
    const Range2d block = XBlock(task);
    const NewtonSchulzScratch scratch = Scratch(worker);
    Pack(block, scratch.packed);
    ForEachPart(block, [&](const Range2d& range) {
      for (int64_t p = 0; p < panels.count(); ++p) {
        const int64_t begin = panels.begin(p);
        gemm_.Multiply(PackedGemmCall{
            .m = range.rows(),
            .n = range.cols(),
            .k = panels.width_of(p),
            .a = z + panels.Offset(range.row_begin, begin),
            .packed_b = scratch.packed + PackedSize(begin, range.cols()),
            .c = scratch.tile,
            .accumulate = p > 0});
      }
      FinishPart(range,
                 {scratch.tile, range.cols(), range.rows(), range.cols()},
                 step.a, num_left);
    });
  });
}

}  // namespace

void RunBF16NewtonSchulz(const NewtonSchulzParts& parts,
                         const std::vector<QuinticStep>& steps) {
  Bf16Iteration iteration(parts);
  iteration.Load();
  for (size_t i = 0; i < steps.size(); ++i) {
    iteration.Run(Rounded(steps[i]), steps.size() - i - 1);
  }
}

}  // namespace muonstore

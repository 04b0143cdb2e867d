#include "src/kernel/newton_schulz_plan.h"

#include <algorithm>

#include "src/kernel/aligned_buffer.h"
#include "src/kernel/newton_schulz_cost.h"
#include "src/kernel/packing.h"

namespace muonstore {
namespace {

constexpr int64_t kLine = kVectorBytes / static_cast<int64_t>(sizeof(float));

// Below this smaller side rounding to bf16 costs more time than it saves.
constexpr int64_t kMinBF16Side = 48;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A leading dimension that is whole cache lines, but no multiple of 4 KiB:
// rows that far apart fall into the same sets of a cache.
int64_t LeadingDimension(int64_t cols) {
  const int64_t rounded = CeilDiv(cols, 2 * kLine) * 2 * kLine;
  return rounded % 512 == 0 ? rounded + 2 * kLine : rounded;
}

int64_t PaddedSide(int64_t side) {
  const bool small = side > kLine && side < 4 * kLine;
  return small ? CeilDiv(side, kLine) * kLine : side;
}

// The side of the blocks of a triangle. Small matrices are one block: products
// of smaller ones would lose more speed than half the work saves.
int64_t TriangleBlock(int64_t n) {
  if (n < 256) {
    return n;
  }
  const int64_t target = n < 2048 ? 128 : 256;
  return CeilDiv(CeilDiv(n, CeilDiv(n, target)), kLine) * kLine;
}

// Rows of one tile at most.
constexpr int64_t kMaxRows = 512;

void CutTriangle(NewtonSchulzPlan* plan) {
  const int64_t block = TriangleBlock(plan->n);
  for (int64_t col = 0; col < plan->n; col += block) {
    const int64_t col_end = std::min(plan->n, col + block);
    for (int64_t row = col; row < plan->n; row += kMaxRows) {
      const int64_t row_end = std::min(plan->n, row + kMaxRows);
      plan->triangle.push_back({row, row_end, col, col_end});
      plan->max_tile_size =
          std::max(plan->max_tile_size, plan->triangle.back().rows() * block);
    }
  }
}

// Squares as wide as the panels of n x n matrices.
void CutBF16Triangle(NewtonSchulzPlan* plan) {
  const int64_t side = plan->n_panels.width;
  for (int64_t row = 0; row < plan->n; row += side) {
    for (int64_t col = 0; col <= row; col += side) {
      plan->triangle.push_back({row, std::min(plan->n, row + side), col,
                                std::min(plan->n, col + side)});
    }
  }
  plan->max_tile_size = side * side;
  // The whole ones first, so that no thread starts one when others end.
  std::stable_partition(
      plan->triangle.begin(), plan->triangle.end(),
      [](const Range2d& range) { return range.row_begin > range.col_begin; });
}

NewtonSchulzBuffers Carve(const NewtonSchulzPlan& plan, Carver* carver) {
  const int64_t x_size = plan.n * plan.ld_x;
  const int64_t n_size = plan.n * plan.ld_n;
  NewtonSchulzBuffers buffers;
  if (plan.bf16) {
    buffers.x_upper = carver->Take<BF16>(plan.x_panels.size());
    buffers.x_lower = carver->Take<int16_t>(plan.x_panels.size());
    buffers.gram_bf16 = carver->Take<BF16>(plan.n_panels.size());
    buffers.polynomial_bf16 = carver->Take<BF16>(plan.n_panels.size());
    return buffers;
  }
  buffers.x = carver->Take<float>(x_size);
  buffers.gram = carver->Take<float>(n_size);
  buffers.polynomial = carver->Take<float>(n_size);
  if (plan.gram) {
    buffers.product = carver->Take<float>(n_size);
    buffers.spare = carver->Take<float>(n_size);
  }
  return buffers;
}

NewtonSchulzScratch TakeScratch(const NewtonSchulzPlan& plan, Carver* carver) {
  NewtonSchulzScratch scratch;
  if (!plan.bf16) {
    scratch.tile = carver->Take<float>(plan.n * plan.panel_cols);
    return scratch;
  }
  const int64_t rows = std::min(plan.n, kBF16Rows);
  scratch.tile =
      carver->Take<float>(std::max(plan.max_tile_size, rows * plan.panel_cols));
  // A square's columns in one panel, or a block of X.
  const int64_t width = std::max(plan.x_panels.width, plan.n_panels.width);
  scratch.packed =
      carver->Take<BF16>(std::max(PackedSize(width, plan.n_panels.width),
                                  PackedSize(plan.n, plan.panel_cols)));
  return scratch;
}

// Columns of X that are multiplied at a time: as operand they take up to 1 MiB.
int64_t BF16PanelCols(const NewtonSchulzPlan& plan) {
  constexpr int64_t kMaxElements = int64_t{1} << 19;
  int64_t cols = 512;
  while (cols > kPackedCols && cols * plan.n > kMaxElements) cols /= 2;
  return std::min(cols, plan.x_panels.width);
}

// What all forms have in common.
NewtonSchulzPlan PlanFor(int64_t rows, int64_t cols) {
  NewtonSchulzPlan plan;
  plan.transposed = rows > cols;
  plan.num_rows = std::min(rows, cols);
  plan.m = std::max(rows, cols);
  return plan;
}

NewtonSchulzPlan BF16Plan(int64_t rows, int64_t cols) {
  NewtonSchulzPlan plan = PlanFor(rows, cols);
  plan.bf16 = true;
  plan.n = RoundUp(plan.num_rows, kPanelAlignment);
  plan.x_panels = MakePanels(plan.n, plan.m, kPackedCols, 1);
  // Two at least of all but small sides, so that threads can share them.
  plan.n_panels = MakePanels(plan.n, plan.n, kPackedCols, plan.n < 256 ? 1 : 2);
  plan.panel_cols = BF16PanelCols(plan);
  CutBF16Triangle(&plan);
  return plan;
}

NewtonSchulzPlan F32Plan(int64_t rows, int64_t cols, bool gram) {
  NewtonSchulzPlan plan = PlanFor(rows, cols);
  plan.gram = gram && plan.m > plan.num_rows;
  plan.n = PaddedSide(plan.num_rows);
  plan.ld_x = LeadingDimension(plan.m);
  plan.ld_n = LeadingDimension(plan.n);
  plan.panel_cols = std::min<int64_t>(plan.m, 256);
  CutTriangle(&plan);
  return plan;
}

}  // namespace

double TriangleSize(const NewtonSchulzPlan& plan) {
  double size = 0;
  const auto add = [&size](const Range2d& range) {
    size += static_cast<double>(range.rows() * range.cols());
  };
  for (const Range2d& range : plan.triangle) {
    if (plan.bf16) {
      ForEachTrianglePart(range, add);
    } else {
      add(range);
    }
  }
  return size;
}

NewtonSchulzPlan MakePlan(const NewtonSchulzOptions& options, int64_t rows,
                          int64_t cols, double bf16_rate) {
  const bool bf16 = options.precision == NewtonSchulzPrecision::kBF16 &&
                    bf16_rate > 0 && std::min(rows, cols) >= kMinBF16Side;
  const bool gram = options.form == NewtonSchulzForm::kGram;
  if (options.form != NewtonSchulzForm::kAuto) {
    return bf16 ? BF16Plan(rows, cols) : F32Plan(rows, cols, gram);
  }
  const size_t num_steps = options.coefficients.steps.size();
  const auto cost = [&](const NewtonSchulzPlan& plan) {
    return CostOf(WorkOf(plan, num_steps), bf16_rate);
  };
  NewtonSchulzPlan best =
      bf16 ? BF16Plan(rows, cols) : F32Plan(rows, cols, false);
  NewtonSchulzPlan other = F32Plan(rows, cols, true);
  return other.gram && cost(other) < cost(best) ? other : best;
}

int64_t NewtonSchulzPlan::num_whole_tasks() const {
  return CeilDiv(n, kMaxRows) * CeilDiv(n, TriangleBlock(n));
}

Range2d NewtonSchulzPlan::WholeTask(int64_t index) const {
  const int64_t block = TriangleBlock(n);
  const int64_t num_row_tasks = CeilDiv(n, kMaxRows);
  const int64_t row = index % num_row_tasks * kMaxRows;
  const int64_t col = index / num_row_tasks * block;
  return {row, std::min(n, row + kMaxRows), col, std::min(n, col + block)};
}

int64_t SharedBytes(const NewtonSchulzPlan& plan) {
  Carver carver(nullptr);
  Carve(plan, &carver);
  return carver.used_bytes();
}

int64_t ScratchBytes(const NewtonSchulzPlan& plan) {
  Carver carver(nullptr);
  TakeScratch(plan, &carver);
  return carver.used_bytes();
}

NewtonSchulzScratch CarveScratch(const NewtonSchulzPlan& plan,
                                 std::byte* bytes) {
  Carver carver(bytes);
  return TakeScratch(plan, &carver);
}

NewtonSchulzBuffers CarveBuffers(const NewtonSchulzPlan& plan,
                                 std::byte* bytes) {
  Carver carver(bytes);
  return Carve(plan, &carver);
}

}  // namespace muonstore

// Orthogonalization of matrices by Newton-Schulz iteration.
//
// What: replaces each matrix G by an approximation of U V^T, where G = U S V^T.
//   X = G / |G|_F, then for every step (a, b, c): X = a X + b (X X^T) X
//   + c (X X^T)^2 X. A matrix with more rows than columns is worked on
//   transposed. No factor for the matrix's shape is applied (see MuonScale).
// Bits: they depend on the matrix, its shape, the options and the processor's
//   instruction set only: not on the number of threads, on how many matrices
//   run together, on strides or on addresses.
// Ownership: input and output belong to the caller. An `Orthogonalizer` keeps
//   its workspace between calls.
// Threads: one call at a time for each Orthogonalizer; several may share a
//   pool. Matrices of a smaller side up to 512 run one a thread, larger ones
//   one after the other with all threads on one.
// Failures: Error(kInvalidArgument) for shapes, strides or options that make no
//   sense and for a matrix that is not finite; it names matrix, row and column.
//   Nothing is written in any of these cases.

#ifndef MUONSTORE_NEWTON_SCHULZ_H_
#define MUONSTORE_NEWTON_SCHULZ_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/thread_pool.h"

namespace muonstore {

// One step maps a singular value s to a s + b s^3 + c s^5.
struct QuinticStep {
  double a = 0;
  double b = 0;
  double c = 0;

  friend bool operator==(const QuinticStep&, const QuinticStep&) = default;
};

// A published set of steps. The norm is multiplied by `norm_factor` before X is
// divided by it: some sets leave their range where rounding makes s exceed 1.
struct NewtonSchulzCoefficients {
  std::string name;
  std::vector<QuinticStep> steps;
  double norm_factor = 1;

  // Five times (3.4445, -4.7750, 2.0315): Keller Jordan's, DeepSpeed's and
  // torch's. Singular values end within [0.68, 1.14]. The default.
  static NewtonSchulzCoefficients Jordan5();
  // Five steps of Polar Express as microsoft/dion has them, norm factor 1.02.
  // Values from 0.005 on end within [0.85, 1.15].
  static NewtonSchulzCoefficients PolarExpress5();
};

enum class NewtonSchulzForm {
  // What costs least on this processor, of the forms that are accurate at the
  // precision: operations and passes over memory are counted. With kBF16 that
  // may be the gram form in f32, where matrices are wide or the processor gains
  // little by bf16.
  kAuto,
  // X is updated in each step: 15 n^2 m + 5 n^3 for five steps, n <= m.
  kStandard,
  // Only n x n matrices are iterated, X is multiplied once at the end:
  // 3 n^2 m + 19 n^3. Its error grows with the condition of the matrix
  // (docs/numerics.md) and without bound with bf16, so that it is refused with
  // kBF16. Square matrices gain nothing and run the standard form.
  kGram,
};

enum class NewtonSchulzPrecision {
  kF32,
  // Operands of products are rounded to bf16; sums are f32, and X is until the
  // last two steps. Its error is at most about torch's in bf16 for ordinary
  // matrices and far below it for rank-deficient ones (docs/numerics.md).
  // Matrices too small to gain by it (a side below 48) run as kF32, and so does
  // all on a processor that does not multiply bf16.
  kBF16,
};

enum class NewtonSchulzNormalization {
  // X = G / (f |G|_F), with the norm in double: exact scale invariance from
  // the smallest to the largest float.
  kScaleFree,
  // X = G / (f |G|_F + 1e-7), as DeepSpeed and Keller Jordan do: matrices of
  // norm 1e-5 and below shrink.
  kCompat,
};

struct NewtonSchulzOptions {
  NewtonSchulzCoefficients coefficients = NewtonSchulzCoefficients::Jordan5();
  NewtonSchulzForm form = NewtonSchulzForm::kAuto;
  NewtonSchulzPrecision precision = NewtonSchulzPrecision::kF32;
  NewtonSchulzNormalization normalization =
      NewtonSchulzNormalization::kScaleFree;
};

// `batch` matrices of `rows` x `cols`; element (b, i, j) lies at
// data[b * batch_stride + i * row_stride + j]. Strides count elements. Any
// MatrixBatch of a layout is one of these: data = tensor + offset.
template <typename T>
struct StridedMatrices {
  T* data = nullptr;
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

// `out` has the shape of `in`. It is either the very same view or overlaps no
// input and no other output of the call; its own matrices must not overlap.
struct OrthogonalizeJob {
  StridedMatrices<const float> in;
  StridedMatrices<float> out;
};

class Orthogonalizer {
 public:
  // `pool` must outlive this object.
  Orthogonalizer(NewtonSchulzOptions options, ThreadPool& pool);
  ~Orthogonalizer();
  Orthogonalizer(const Orthogonalizer&) = delete;
  Orthogonalizer& operator=(const Orthogonalizer&) = delete;

  const NewtonSchulzOptions& options() const { return options_; }

  // A zero matrix gives zeros; an empty one is left alone. Matrices of
  // different shapes may be in one call: the more there are, the better small
  // ones fill the threads.
  void Run(std::span<const OrthogonalizeJob> jobs);

  // What Run takes beyond its arguments, at most, for any number of matrices of
  // this shape; for several shapes in one call, the sum over the largest small
  // and the largest large one. The library behind matrix products packs
  // operands in a few MiB a thread of its own. Kept until ReleaseWorkspace.
  int64_t WorkspaceBytes(int64_t rows, int64_t cols) const;
  int64_t workspace_bytes() const;  // Held now.
  void ReleaseWorkspace();

 private:
  class Impl;

  NewtonSchulzOptions options_;
  std::unique_ptr<Impl> impl_;
};

// One call of a fresh Orthogonalizer.
void Orthogonalize(const StridedMatrices<const float>& in,
                   const StridedMatrices<float>& out,
                   const NewtonSchulzOptions& options, ThreadPool& pool);

// The form that kAuto stands for on this processor: never kAuto.
NewtonSchulzForm ChooseForm(const NewtonSchulzOptions& options, int64_t rows,
                            int64_t cols);

// Floating-point operations of one matrix in the form that would run, with
// symmetric products counted as far as they are computed: what ranks share
// matrices by. The same on every processor.
double OrthogonalizeFlops(const NewtonSchulzOptions& options, int64_t rows,
                          int64_t cols);

// Which library and instruction set multiply matrices here, for reports:
// "oneDNN 2.6.3 avx512_core_amx", and whether kBF16 runs as kF32.
std::string MatrixProductName();

}  // namespace muonstore

#endif  // MUONSTORE_NEWTON_SCHULZ_H_

#include "src/inspect/tensor_diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "src/base/str.h"
#include "src/inspect/real_dtype.h"
#include "src/inspect/widening_rest.h"

namespace muonstore {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 18;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Number types that floats can be rounded to.
bool IsRoundingTarget(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Ranges of [0, num_elements) that both tensors hold.
std::vector<ElementRange> PresentInBoth(const CheckpointTensor& a,
                                        const CheckpointTensor& b) {
  std::vector<ElementRange> missing = a.missing;
  missing.insert(missing.end(), b.missing.begin(), b.missing.end());
  std::sort(missing.begin(), missing.end(),
            [](const ElementRange& x, const ElementRange& y) {
              return x.begin < y.begin;
            });
  std::vector<ElementRange> present;
  int64_t at = 0;
  for (const ElementRange& range : missing) {
    if (range.begin > at) present.push_back({at, range.begin});
    at = std::max(at, range.end);
  }
  const int64_t end = a.shape.num_elements();
  if (at < end) present.push_back({at, end});
  return present;
}

int64_t NumMissing(const CheckpointTensor& tensor) {
  int64_t count = 0;
  for (const ElementRange& range : tensor.missing) count += range.size();
  return count;
}

// One side's block: as stored, and as doubles where that has a meaning.
struct Side {
  explicit Side(const TensorRef& tensor) : ref(tensor) {}

  void Load(ElementRange range) {
    bytes.resize(static_cast<size_t>(range.size() * SizeBytes(dtype())));
    ReadTensor(ref.checkpoint, ref.index, range, bytes);
  }
  void Widen(size_t count) {
    values.resize(count);
    ConvertToF64(dtype(), bytes, values);
    rests = RestsOfWidening(dtype(), bytes, values);
  }
  double rest(size_t i) const { return rests.empty() ? 0 : rests[i]; }
  DType dtype() const { return ref.info().dtype; }

  TensorRef ref;
  std::vector<std::byte> bytes;
  std::vector<double> values;
  std::vector<double> rests;  // Empty where all are 0.
};

// Rounds the wider side's values to the narrower side's dtype and compares.
bool EqualAfterRounding(const Side& wide, const Side& narrow) {
  std::vector<float> floats(wide.values.size());
  std::transform(wide.values.begin(), wide.values.end(), floats.begin(),
                 [](double value) { return static_cast<float>(value); });
  std::vector<std::byte> rounded(narrow.bytes.size());
  ConvertFromF32(floats, narrow.dtype(), rounded);
  if (rounded == narrow.bytes) return true;
  std::vector<double> values(floats.size());
  ConvertToF64(narrow.dtype(), rounded, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool both_nan = std::isnan(values[i]) && std::isnan(narrow.values[i]);
    if (!both_nan && values[i] != narrow.values[i]) return false;
  }
  return true;
}

class Comparison {
 public:
  Comparison(const TensorRef& a, const TensorRef& b, const Tolerance& tolerance)
      : a_(a), b_(b), tolerance_(tolerance) {
    same_dtype_ = a_.dtype() == b_.dtype();
    real_ = IsReal(a_.dtype()) && IsReal(b_.dtype());
    narrow_ = &a_;
    wide_ = &b_;
    if (SizeBytes(a_.dtype()) > SizeBytes(b_.dtype())) {
      std::swap(narrow_, wide_);
    }
    may_round_ = !same_dtype_ && IsFloatingPoint(wide_->dtype()) &&
                 IsRoundingTarget(narrow_->dtype()) &&
                 SizeBytes(wide_->dtype()) > SizeBytes(narrow_->dtype());
  }

  TensorDiff Run() {
    diff_.key = a_.ref.info().key;
    diff_.shape_a = a_.ref.info().shape;
    diff_.shape_b = b_.ref.info().shape;
    diff_.dtype_a = a_.dtype();
    diff_.dtype_b = b_.dtype();
    if (diff_.shape_a != diff_.shape_b) {
      diff_.verdict = TensorVerdict::kShapeDiffers;
      return diff_;
    }
    if (!same_dtype_ && !real_) {
      diff_.verdict = TensorVerdict::kDifferent;
      diff_.note = "the dtypes cannot be compared";
      return diff_;
    }
    for (const ElementRange& part :
         PresentInBoth(a_.ref.info(), b_.ref.info())) {
      ComparePart(part);
    }
    Conclude();
    return diff_;
  }

 private:
  void ComparePart(ElementRange part) {
    for (int64_t at = part.begin; at < part.end; at += kBlockElements) {
      const ElementRange block{at, std::min(part.end, at + kBlockElements)};
      a_.Load(block);
      b_.Load(block);
      if (same_dtype_ && a_.bytes == b_.bytes) continue;
      if (real_) {
        CompareValues(block);
      } else {
        CompareBits(block);
      }
    }
  }

  // Same dtype without a meaning as real numbers.
  void CompareBits(ElementRange block) {
    const auto bytes = static_cast<size_t>(SizeBytes(a_.dtype()));
    for (size_t i = 0; i < static_cast<size_t>(block.size()); ++i) {
      if (!SameBits(i, bytes))
        CountFirst(block.begin + static_cast<int64_t>(i));
    }
  }

  bool SameBits(size_t i, size_t bytes) const {
    return std::memcmp(a_.bytes.data() + i * bytes, b_.bytes.data() + i * bytes,
                       bytes) == 0;
  }

  void CompareValues(ElementRange block) {
    const auto count = static_cast<size_t>(block.size());
    a_.Widen(count);
    b_.Widen(count);
    const auto bytes = static_cast<size_t>(SizeBytes(a_.dtype()));
    bool widened_differ = false;
    for (size_t i = 0; i < count; ++i) {
      const double x = a_.values[i];
      const double y = b_.values[i];
      if (same_dtype_ ? SameBits(i, bytes) : SameValues(i)) continue;
      widened_differ = true;
      any_unequal_ = true;
      const double rest = a_.rest(i) - b_.rest(i);
      if (!tolerance_.exact() && Close(x, y, rest)) continue;
      CountDifference(block.begin + static_cast<int64_t>(i), {x, y, rest});
    }
    if (widened_differ && may_round_ && rounds_equal_) {
      rounds_equal_ = EqualAfterRounding(*wide_, *narrow_);
    }
  }

  // Of two dtypes.
  bool SameValues(size_t i) const {
    const double x = a_.values[i];
    const double y = b_.values[i];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y && std::signbit(x) == std::signbit(y) &&
           a_.rest(i) == b_.rest(i);
  }

  bool Close(double x, double y, double rest) const {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    if (x == y && rest == 0) return true;
    return std::isfinite(x) && std::isfinite(y) &&
           std::abs(x - y + rest) <=
               tolerance_.atol + tolerance_.rtol * std::abs(y);
  }

  void CountFirst(int64_t element) {
    if (diff_.num_different++ == 0) diff_.first_element = element;
  }

  // Two values, and what their difference as doubles leaves out.
  struct Values {
    double x;
    double y;
    double rest;
  };

  void CountDifference(int64_t element, const Values& values) {
    const auto [x, y, rest] = values;
    CountFirst(element);
    if (!diff_.first_a) {
      diff_.first_a = x;
      diff_.first_b = y;
    }
    double abs = std::abs(x - y + rest);
    double rel = abs == 0 ? 0 : abs / std::max(std::abs(x), std::abs(y));
    if (!std::isfinite(x) || !std::isfinite(y)) abs = rel = kInfinity;
    diff_.max_abs = std::max(diff_.max_abs.value_or(0), abs);
    diff_.max_rel = std::max(diff_.max_rel.value_or(0), rel);
  }

  void Conclude() {
    const int64_t missing_a = NumMissing(a_.ref.info());
    const int64_t missing_b = NumMissing(b_.ref.info());
    if (missing_a + missing_b > 0) {
      diff_.verdict = TensorVerdict::kMissing;
      diff_.note = StrCat(missing_a, " elements are missing in A, ", missing_b,
                          " in B; the rest was compared");
    } else if (same_dtype_) {
      ConcludeValues(TensorVerdict::kEqual);
    } else {
      ConcludeAcrossDTypes();
    }
  }

  void ConcludeAcrossDTypes() {
    const std::string wide(DTypeName(wide_->dtype()));
    const std::string narrow(DTypeName(narrow_->dtype()));
    if (!any_unequal_) {
      diff_.verdict = TensorVerdict::kEqualUpToDType;
      diff_.note = StrCat("equal after widening ", narrow, " to ", wide);
    } else if (may_round_ && rounds_equal_) {
      // The differences are the rounding itself.
      diff_.verdict = TensorVerdict::kEqualUpToDType;
      diff_.note = StrCat("equal after rounding ", wide, " to ", narrow);
    } else {
      ConcludeValues(TensorVerdict::kEqualUpToDType);
    }
  }

  void ConcludeValues(TensorVerdict equal) {
    if (diff_.num_different > 0) {
      diff_.verdict = TensorVerdict::kDifferent;
    } else {
      diff_.verdict = any_unequal_ ? TensorVerdict::kClose : equal;
    }
  }

  Side a_;
  Side b_;
  const Side* narrow_ = nullptr;
  const Side* wide_ = nullptr;
  Tolerance tolerance_;
  bool same_dtype_ = false;
  bool real_ = false;
  bool may_round_ = false;
  bool rounds_equal_ = true;
  bool any_unequal_ = false;
  TensorDiff diff_;
};

}  // namespace

std::string_view TensorVerdictName(TensorVerdict verdict) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "only in A",         "only in B", "shape differs",
      "elements missing",  "different", "close",
      "equal up to dtype", "equal",     "derived"};
  return kNames[static_cast<size_t>(verdict)];
}

bool IsDifference(TensorVerdict verdict) {
  return verdict <= TensorVerdict::kDifferent;
}

TensorDiff DiffTensors(const TensorRef& a, const TensorRef& b,
                       const Tolerance& tolerance) {
  return Comparison(a, b, tolerance).Run();
}

}  // namespace muonstore

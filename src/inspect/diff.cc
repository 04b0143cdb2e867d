#include "src/inspect/diff.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

// A tensor of A and its partner in B; one of the two may be absent.
struct Pair {
  std::optional<size_t> a;
  std::optional<size_t> b;
};

// Smaller is worse.
bool WorseThan(const TensorDiff& x, const TensorDiff& y) {
  const auto rank = [](const TensorDiff& diff) {
    return std::tuple(static_cast<int>(diff.verdict), -diff.max_rel.value_or(0),
                      -diff.max_abs.value_or(0));
  };
  return rank(x) != rank(y) ? rank(x) < rank(y) : x.key < y.key;
}

class CheckpointDiff {
 public:
  CheckpointDiff(const Checkpoint& a, const Checkpoint& b,
                 const DiffOptions& options)
      : a_(a),
        b_(b),
        options_(options),
        index_a_(a),
        index_b_(b),
        lacking_in_a_(LackingIn(a.info())),
        lacking_in_b_(LackingIn(b.info())) {}

  DiffReport Run() {
    FindPairs();
    uint64_t total_bytes = 0;
    for (const Pair& pair : pairs_) total_bytes += Bytes(pair);
    ByteProgress progress(options_.progress, total_bytes);
    ParallelFor(pairs_.size(), options_.jobs, [&](size_t i) {
      Keep(Compare(pairs_[i]));
      progress.Add(Bytes(pairs_[i]));
    });
    AddValues();
    return std::move(report_);
  }

 private:
  bool Selected(const CheckpointTensor& tensor) const {
    return !options_.select || options_.select(tensor);
  }

  void FindPairs() {
    for (size_t i = 0; i < a_.tensors().size(); ++i) {
      const CheckpointTensor& tensor = a_.tensors()[i];
      if (Selected(tensor)) pairs_.push_back({i, index_b_.Find(tensor.key)});
    }
    for (size_t i = 0; i < b_.tensors().size(); ++i) {
      const CheckpointTensor& tensor = b_.tensors()[i];
      if (Selected(tensor) && !index_a_.Find(tensor.key)) {
        pairs_.push_back({std::nullopt, i});
      }
    }
  }

  static uint64_t LogicalBytes(const CheckpointTensor& tensor) {
    return static_cast<uint64_t>(tensor.shape.num_elements()) *
           static_cast<uint64_t>(SizeBytes(tensor.dtype));
  }

  uint64_t Bytes(const Pair& pair) const {
    if (!pair.a || !pair.b) return 0;
    return LogicalBytes(a_.tensors()[*pair.a]) +
           LogicalBytes(b_.tensors()[*pair.b]);
  }

  TensorDiff Compare(const Pair& pair) const {
    if (pair.a && pair.b) {
      return DiffTensors({a_, *pair.a}, {b_, *pair.b}, options_.tolerance);
    }
    TensorDiff diff;
    const CheckpointTensor& tensor =
        pair.a ? a_.tensors()[*pair.a] : b_.tensors()[*pair.b];
    diff.key = tensor.key;
    (pair.a ? diff.shape_a : diff.shape_b) = tensor.shape;
    (pair.a ? diff.dtype_a : diff.dtype_b) = tensor.dtype;
    const TensorIndex& other = pair.a ? index_b_ : index_a_;
    if (tensor.shape.num_elements() == 0) {
      diff.verdict = TensorVerdict::kEqual;
    } else if (tensor.key.kind == kWeight &&
               !(pair.a ? lacking_in_b_ : lacking_in_a_)
                    .contains(tensor.key.ToString()) &&
               other.Find({tensor.key.parameter, std::string(kMaster)})) {
      diff.verdict = TensorVerdict::kDerived;
      diff.note = pair.a ? "weight stored by A only, round(master) in B"
                         : "weight stored by B only, round(master) in A";
    } else {
      diff.verdict = pair.a ? TensorVerdict::kOnlyInA : TensorVerdict::kOnlyInB;
    }
    return diff;
  }

  // Tensors that the checkpoint should store and does not.
  static std::set<std::string> LackingIn(const CheckpointInfo& info) {
    std::set<std::string> names;
    for (const Finding& finding : info.findings) {
      if (finding.severity == Finding::Severity::kFault) {
        names.insert(finding.place.tensor);
      }
    }
    return names;
  }

  void Keep(TensorDiff diff) {
    const std::lock_guard lock(mutex_);
    ++report_.counts[static_cast<size_t>(diff.verdict)];
    if (diff.verdict == TensorVerdict::kEqual) return;
    if (diff.verdict >= TensorVerdict::kEqualUpToDType) {
      ++report_.notes[diff.note];
      return;
    }
    auto& worst = report_.worst;
    worst.insert(std::upper_bound(worst.begin(), worst.end(), diff, WorseThan),
                 std::move(diff));
    if (worst.size() > options_.max_listed) worst.pop_back();
  }

  void AddValues() {
    const auto append = [this](std::vector<ValueDiff> values) {
      report_.values.insert(report_.values.end(),
                            std::make_move_iterator(values.begin()),
                            std::make_move_iterator(values.end()));
    };
    const bool any_momentum =
        std::any_of(pairs_.begin(), pairs_.end(), [this](const Pair& pair) {
          return pair.a && a_.tensors()[*pair.a].key.kind == kMomentum;
        });
    if (any_momentum) append(DiffMomentumRecords(a_.info(), b_.info()));
    if (options_.select) return;
    append(DiffGroups(a_, b_));
    append(DiffCounters(a_.info(), b_.info()));
    append(DiffFaults(a_.info(), b_.info()));
  }

  const Checkpoint& a_;
  const Checkpoint& b_;
  const DiffOptions& options_;
  TensorIndex index_a_;
  TensorIndex index_b_;
  std::set<std::string> lacking_in_a_;
  std::set<std::string> lacking_in_b_;
  std::vector<Pair> pairs_;
  std::mutex mutex_;
  DiffReport report_;
};

}  // namespace

int64_t DiffReport::num_tensors() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool DiffReport::same_state() const {
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0 && IsDifference(static_cast<TensorVerdict>(i))) {
      return false;
    }
  }
  return std::none_of(values.begin(), values.end(), [](const ValueDiff& value) {
    return value.is_difference;
  });
}

DiffReport DiffCheckpoints(const Checkpoint& a, const Checkpoint& b,
                           const DiffOptions& options) {
  for (const double limit : {options.tolerance.rtol, options.tolerance.atol}) {
    if (!std::isfinite(limit) || limit < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a tolerance of diff is no finite number of at least 0",
                  {.found = StrCat(limit)});
    }
  }
  return CheckpointDiff(a, b, options).Run();
}

}  // namespace muonstore

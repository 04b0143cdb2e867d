#include "formats/safetensors/export_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

#include <nlohmann/json.hpp>

namespace muonstore::safetensors {
namespace {

// "00001".
std::string FiveDigits(size_t number) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%05zu", number);
  return text.data();
}

// Between floating-point dtypes: not every value of `from` is one of `to`.
bool LosesBits(DType from, DType to) {
  if (from == to || to == DType::kF64) return false;
  return !(to == DType::kF32 && from != DType::kF64);
}

class Planner {
 public:
  Planner(const Checkpoint& source, const ExportOptions& options)
      : source_(source), options_(options) {
    for (const CheckpointTensor& tensor : source.tensors()) {
      if (tensor.key.kind == options.state) {
        has_state_.insert(tensor.key.parameter);
      }
      if (tensor.key.kind == kMaster) {
        has_master_.insert(tensor.key.parameter);
      }
    }
    is_model_ = options.state == kWeight || options.state == kMaster;
  }

  ExportPlan Run() {
    std::vector<ExportedTensor> tensors = Select();
    if (tensors.empty()) ThrowNothing();
    OrderByModule(tensors);
    Split(std::move(tensors));
    AddLosses();
    AddNotes();
    return std::move(plan_);
  }

 private:
  bool IsTaken(const CheckpointTensor& tensor) const {
    const StateKind& kind = tensor.key.kind;
    if (kind == options_.state) return true;
    if (!is_model_) return false;
    if (kind == kBuffer) return true;
    // The other one of weight and master.
    if (has_state_.contains(tensor.key.parameter)) return false;
    return kind == kMaster ||
           (kind == kWeight && !has_master_.contains(tensor.key.parameter));
  }

  DType DTypeOf(const CheckpointTensor& tensor) const {
    const bool converts = options_.dtype && tensor.key.kind != kBuffer &&
                          IsFloatingPoint(tensor.dtype);
    return converts ? *options_.dtype : tensor.dtype;
  }

  std::vector<ExportedTensor> Select() {
    std::vector<ExportedTensor> tensors;
    bool any_state = false;
    for (size_t i = 0; i < source_.tensors().size(); ++i) {
      const CheckpointTensor& tensor = source_.tensors()[i];
      if (!IsTaken(tensor)) {
        dropped_[tensor.key.kind].push_back(i);
        continue;
      }
      any_state = any_state || tensor.key.kind != kBuffer;
      const DType dtype = DTypeOf(tensor);
      RequireWritable(tensor.key.parameter, dtype);
      if (LosesBits(tensor.dtype, dtype)) rounded_.push_back(i);
      if (tensor.key.kind != options_.state && tensor.key.kind != kBuffer) {
        ++num_other_;
      }
      tensors.push_back({.tensor = i,
                         .entry = {.name = tensor.key.parameter,
                                   .dtype = dtype,
                                   .shape = tensor.shape}});
    }
    if (!any_state) tensors.clear();
    return tensors;
  }

  [[noreturn]] void ThrowNothing() const {
    std::vector<std::string> kinds;
    for (const auto& [kind, tensors] : dropped_) kinds.push_back(kind);
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("the checkpoint holds no state '", Printable(options_.state),
               "'; it has: ", JoinNames(kinds, 10)),
        {.file = source_.info().path});
  }

  void OrderByModule(std::vector<ExportedTensor>& tensors) const {
    std::unordered_map<std::string, size_t> position;
    for (const std::string& name : source_.info().module_order) {
      position.emplace(name, position.size());
    }
    const auto at = [&](const ExportedTensor& tensor) {
      const auto it = position.find(tensor.entry.name);
      return it == position.end() ? position.size() : it->second;
    };
    std::stable_sort(tensors.begin(), tensors.end(),
                     [&](const ExportedTensor& a, const ExportedTensor& b) {
                       return at(a) < at(b);
                     });
  }

  // A tensor that is larger than a shard gets one of its own, and does not
  // close the one that is being filled.
  void Split(std::vector<ExportedTensor> tensors) {
    std::vector<std::vector<ExportedTensor>> shards;
    std::vector<ExportedTensor> open;
    uint64_t open_bytes = 0;
    for (ExportedTensor& tensor : tensors) {
      const uint64_t bytes = SizeBytes(tensor.entry);
      if (bytes > options_.max_shard_bytes) {
        shards.emplace_back().push_back(std::move(tensor));
        continue;
      }
      if (open_bytes + bytes > options_.max_shard_bytes) {
        shards.push_back(std::exchange(open, {}));
        open_bytes = 0;
      }
      open_bytes += bytes;
      open.push_back(std::move(tensor));
    }
    if (!open.empty()) shards.push_back(std::move(open));
    for (size_t i = 0; i < shards.size(); ++i) {
      AddShard(std::move(shards[i]), i, shards.size());
    }
  }

  void AddShard(std::vector<ExportedTensor> tensors, size_t index,
                size_t count) {
    std::sort(tensors.begin(), tensors.end(),
              [](const ExportedTensor& a, const ExportedTensor& b) {
                return IsBefore(a.entry, b.entry);
              });
    uint64_t end = 0;  // The tensors stand back to back.
    for (ExportedTensor& tensor : tensors) {
      tensor.entry.begin_bytes = end;
      end += SizeBytes(tensor.entry);
      tensor.entry.end_bytes = end;
    }
    const std::string number = count == 1 ? ""
                                          : StrCat("-", FiveDigits(index + 1),
                                                   "-of-", FiveDigits(count));
    plan_.shards.push_back(
        {.file_name = StrCat("model", number, ".safetensors"),
         .tensors = std::move(tensors)});
  }

  void AddLosses() {
    for (const auto& [kind, tensors] : dropped_) {
      plan_.losses.push_back({.kind = kind,
                              .message = StrCat(Printable(kind), " of ",
                                                tensors.size(), " parameters"),
                              .tensors = tensors,
                              .is_chosen = true});
    }
    if (!source_.info().groups.empty() || !source_.info().carried.empty()) {
      plan_.losses.push_back(
          {.kind = "carried",
           .message = "hyper-parameters, counters and all else that is no "
                      "tensor",
           .is_chosen = true});
    }
    if (!rounded_.empty()) {
      plan_.losses.push_back(
          {.kind = "precision",
           .message =
               StrCat("the last bits of ", rounded_.size(),
                      " tensors: rounded to ", DTypeName(*options_.dtype)),
           .is_chosen = true});
    }
  }

  void AddNotes() {
    if (num_other_ > 0) {
      plan_.notes.push_back(StrCat(
          num_other_, " parameters without ", options_.state, " have their ",
          options_.state == kMaster ? kWeight : kMaster, " in the files"));
    }
    for (const auto& [dropped, kept] : source_.info().aliases) {
      plan_.notes.push_back(StrCat(Printable(dropped), " is tied to ",
                                   Printable(kept),
                                   ": written once, under that name"));
    }
  }

  const Checkpoint& source_;
  const ExportOptions& options_;
  bool is_model_ = false;
  std::set<std::string> has_state_;   // Parameters.
  std::set<std::string> has_master_;  // Parameters.
  std::map<StateKind, std::vector<size_t>> dropped_;
  std::vector<size_t> rounded_;
  int64_t num_other_ = 0;
  ExportPlan plan_;
};

}  // namespace

ExportPlan PlanExport(const Checkpoint& source, const ExportOptions& options) {
  return Planner(source, options).Run();
}

std::string IndexText(const ExportPlan& plan) {
  nlohmann::json index;
  uint64_t total_bytes = 0;
  index["weight_map"] = nlohmann::json::object();
  for (const Shard& shard : plan.shards) {
    for (const ExportedTensor& tensor : shard.tensors) {
      total_bytes += SizeBytes(tensor.entry);
      index["weight_map"][tensor.entry.name] = shard.file_name;
    }
  }
  index["metadata"]["total_size"] = total_bytes;
  return index.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

}  // namespace muonstore::safetensors

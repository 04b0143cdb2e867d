// What the writer of DeepSpeed files knows of source and target.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_TARGET_H_
#define MUONSTORE_FORMATS_DEEPSPEED_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/deepspeed/rank_states.h"
#include "formats/deepspeed/source_index.h"
#include "formats/torchfile/carried_state.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

// Whose structure is written, where the source names no version.
inline constexpr std::string_view kWrittenVersion = "0.19.8";

// An entry of the `module` dict.
struct ModuleEntry {
  enum class Kind {
    kTrained,  // Of a flat group.
    kTied,     // Another name of one.
    kFrozen,   // A parameter without optimizer state.
    kBuffer,
    kOther,  // No tensor of the logical state: carried along.
  };
  std::string name;
  Kind kind = Kind::kOther;
  int32_t parameter = -1;  // kTrained, kTied: index into the specs.
  size_t tensor = 0;       // kFrozen, kBuffer: index into the source's tensors.
};

// Borrows source and layout. Immutable after construction.
class Target {
 public:
  // Error(kUnsupported) for an offload mode or precision that cannot be
  // written, Error(kInvalidArgument) for a layout that does not fit the source.
  Target(const Checkpoint& source, const TargetLayout& layout);

  const Checkpoint& source() const { return index_.source(); }
  const SourceIndex& index() const { return index_; }
  const TargetLayout& layout() const { return layout_; }
  const Partitioning& partitioning() const { return layout_.partitioning; }
  Writer writer() const { return writer_; }
  int32_t stage() const { return layout_.partitioning.stage(); }
  int32_t num_ranks() const { return layout_.partitioning.num_ranks(); }
  bool is_bf16() const { return layout_.precision == "bf16"; }
  const ParameterSpec& spec(int32_t parameter) const {
    return layout_.specs[static_cast<size_t>(parameter)];
  }
  // `module`, in module order.
  const std::vector<ModuleEntry>& module() const { return module_; }
  // Parameters without optimizer state, in the source's order.
  const std::vector<ModuleEntry>& frozen() const { return frozen_; }
  // Order of a parameter among the module's parameters, as DeepSpeed numbers
  // them (ds_id).
  int64_t parameter_number(int32_t parameter) const;

  // Names of Muon groups of which the source, after a step, has no momentum.
  std::vector<std::string> GroupsWithoutMomentum() const;

  // What rank `rank` of the target takes over: that of the source's rank with
  // the same number where there is one, else rank 0's.
  torchfile::CarriedRank Carried(int32_t rank) const;

 private:
  void CheckModes() const;
  void ListModule();
  ModuleEntry EntryOf(const std::string& name) const;
  std::vector<std::string> ModuleNames() const;

  SourceIndex index_;
  const TargetLayout& layout_;
  Writer writer_ = Writer::kZero12;
  std::unordered_map<std::string, int32_t> parameters_;
  std::vector<ModuleEntry> module_;
  std::vector<ModuleEntry> frozen_;
  std::vector<int64_t> numbers_;  // By parameter.
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_TARGET_H_

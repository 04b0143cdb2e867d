// Which tensors of a checkpoint go into which safetensors file.
//
// What: one kind of state of every parameter under the parameter's own name.
//   For `weight` and `master` that is a whole model: frozen parameters and
//   buffers are in it, and a parameter without the wanted one of the two is
//   taken from the other. Shards are filled in the module's order, as
//   Hugging Face does it.
// Ownership: plain values; tensors are indices into the source's.
// Threads: a pure function of the source's tables.
// Failures: Error(kInvalidArgument) where the source has no such state,
//   Error(kUnsupported) for names and dtypes that the format lacks.

#ifndef MUONSTORE_FORMATS_SAFETENSORS_EXPORT_PLAN_H_
#define MUONSTORE_FORMATS_SAFETENSORS_EXPORT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/safetensors/header.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::safetensors {

struct ExportOptions {
  StateKind state = StateKind(kWeight);
  // Of floating-point parameters; nullopt: as stored. Buffers keep theirs.
  std::optional<DType> dtype = std::nullopt;
  uint64_t max_shard_bytes = 5'000'000'000;
};

struct ExportedTensor {
  size_t tensor = 0;
  TensorEntry entry;
};

struct Shard {
  std::string file_name;                // "model-00001-of-00002.safetensors".
  std::vector<ExportedTensor> tensors;  // In the order of the file.
};

struct ExportPlan {
  std::vector<Shard> shards;
  std::vector<SinkLoss> losses;
  std::vector<std::string> notes;
};

ExportPlan PlanExport(const Checkpoint& source, const ExportOptions& options);

// The text of model.safetensors.index.json.
std::string IndexText(const ExportPlan& plan);

}  // namespace muonstore::safetensors

#endif  // MUONSTORE_FORMATS_SAFETENSORS_EXPORT_PLAN_H_

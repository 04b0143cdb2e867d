// The `*_model_states.pt` files of a DeepSpeed checkpoint.
//
// What: shapes and order of the parameters, the module's own tensors, frozen
//   parameters, tied names, counters and everything that is carried along.
// Ownership: keeps its TorchFile, of which it holds cursors.
// Threads: immutable after parsing.
// Failures: Error with the file: kDataLoss for a structure that DeepSpeed does
//   not write, kUnsupported for parallelism beyond one data-parallel group.

#ifndef MUONSTORE_FORMATS_DEEPSPEED_MODEL_STATES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_MODEL_STATES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/deepspeed/run_config.h"
#include "formats/deepspeed/values.h"
#include "formats/torchfile/torch_file.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// A tensor of this file by name; `tensor` indexes the file's value tree.
struct NamedTensor {
  std::string name;
  uint32_t tensor = 0;
};

struct ModelStates {
  std::shared_ptr<const torchfile::TorchFile> file;
  // One list per flat group (param group, or sub-group in stage 3), each in
  // flat order. This order is the authority for every layout.
  std::vector<std::vector<NamedShape>> param_shapes;
  // Every tensor of `module`, in module order; in stage 3 the parameters are
  // placeholders without elements.
  std::vector<NamedTensor> module;
  std::vector<std::string> buffer_names;
  std::vector<NamedShape> frozen_shapes;      // Empty where the file has none.
  std::vector<NamedTensor> frozen_fragments;  // Whole, or pieces in stage 3.
  std::map<std::string, std::string> tied;    // Dropped name -> kept name.
  // Entries of shared_params that cannot be: see FindGaps.
  std::map<std::string, std::string> broken_ties;
  int64_t dp_world_size = 0;
  std::optional<int64_t> global_steps;
  std::optional<int64_t> skipped_steps;
  std::string version;
  RunConfig config;
  ScalarMap counters;
  std::vector<CarriedValue> carried;

  const torchfile::TensorInfo& tensor(const NamedTensor& named) const {
    return file->tree().tensors[named.tensor];
  }
};

ModelStates ReadModelStates(std::shared_ptr<FileSystem> fs,
                            const std::string& path);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_MODEL_STATES_H_

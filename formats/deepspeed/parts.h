// The files of a tag directory, parsed as far as they can be.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_PARTS_H_
#define MUONSTORE_FORMATS_DEEPSPEED_PARTS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/model_states.h"
#include "formats/deepspeed/rank_states.h"
#include "formats/deepspeed/state_table.h"
#include "formats/deepspeed/tag_directory.h"
#include "muonstore/error.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {

struct Parts {
  std::shared_ptr<FileSystem> fs;
  TagDirectory directory;
  bool rank_zero_only = false;
  std::optional<ModelStates> model;  // Of rank 0.
  // Of ranks 1, 2, ...: kept only where frozen pieces lie in them (stage 3).
  std::vector<ModelStates> other_models;
  std::vector<RankStates> ranks;  // Those that could be read, ascending.
  // Built when every rank could be read.
  std::optional<Layout> layout;
  std::optional<StateTable> table;
  // Everything that is missing, damaged, contradictory or unsupported.
  std::vector<Error> problems;

  bool offloaded() const { return model && model->config.offload != "none"; }
};

// Never throws for what the files hold: that is in `problems`.
Parts LoadParts(std::shared_ptr<FileSystem> fs, const std::string& path,
                bool rank_zero_only);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_PARTS_H_

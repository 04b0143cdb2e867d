// Writes small DeepSpeed checkpoints of any form, for tests only.
//
// What: from a spec to the files that DeepSpeed would write. The layout comes
//   from the independent oracle, and every element of every tensor has a value
//   of its own. Storage that belongs to no parameter is NaN.
// Ownership: values.
// Failures: std::exception where a file cannot be written.
#ifndef MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_WRITER_H_
#define MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_WRITER_H_

#include <filesystem>
#include <map>
#include <string>

#include "tests/deepspeed/checkpoint_spec.h"
#include "tests/deepspeed/python_value.h"

namespace muonstore::deepspeed {

struct CheckpointFiles {
  std::map<std::string, PythonValue> torch_files;  // By file name.
  std::map<std::string, std::string> swap_files;   // By path in the tag.

  void Write(const std::filesystem::path& tag) const;
};

CheckpointFiles MakeCheckpoint(const CheckpointSpec& spec);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_WRITER_H_

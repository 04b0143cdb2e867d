// A small sound checkpoint that a test changes before it is written.
//
// What: two Muon matrices ("p0" 4x6, "p1" 3x5), an Adam vector ("p2", 7) and a
//   frozen matrix ("p3" 3x3) on two ranks.
// Ownership: owns its values and a folder that is removed at its end.
// Failures: expectations that do not hold are failures of the running test.
#ifndef MUONSTORE_TESTS_DEEPSPEED_CRAFTED_H_
#define MUONSTORE_TESTS_DEEPSPEED_CRAFTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/error.h"
#include "tests/deepspeed/checkpoint_writer.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {

CheckpointSpec CraftedSpec(int stage);

class Crafted {
 public:
  explicit Crafted(const CheckpointSpec& spec)
      : spec_(spec), files_(MakeCheckpoint(spec)) {}
  explicit Crafted(int stage) : Crafted(CraftedSpec(stage)) {}

  PythonValue& model(int rank = 0) {
    return files_.torch_files.at(ModelFile(spec_, rank));
  }
  PythonValue& optim(int rank) {
    return files_.torch_files.at(OptimFile(spec_, rank));
  }
  // The part that DeepSpeed's optimizer class wrote.
  PythonValue& zero(int rank) {
    return optim(rank).Get("optimizer_state_dict");
  }
  // The state of a flat group.
  PythonValue& state(int rank, int64_t flat_group);

  std::string model_name(int rank = 0) const { return ModelFile(spec_, rank); }
  std::string optim_name(int rank) const { return OptimFile(spec_, rank); }
  std::string tag() const { return (scratch_ / "tag").string(); }

  // Writes all files and opens them.
  void Open() const;
  // Writes one file again.
  void Rewrite(const std::string& name) const;
  void OpenWritten() const;

  // Opening is an error of this code, with these words in its text and a file;
  // verify finds a fault too, and the listing does not throw.
  void ExpectError(ErrorCode code, const std::vector<std::string>& words) const;
  void ExpectDataLoss(const std::vector<std::string>& words) const {
    ExpectError(ErrorCode::kDataLoss, words);
  }
  void ExpectUnsupported(const std::vector<std::string>& words) const {
    ExpectError(ErrorCode::kUnsupported, words);
  }

  // Opens, and verify finds no fault.
  void ExpectSound() const;
  // Opens, and both opening and verify list this finding, and no other one.
  void ExpectFinding(Finding::Severity severity, const std::string& code,
                     const std::vector<std::string>& words) const;
  // What verify finds in the files as they are now; for a change of other files
  // between, call Open() first.
  std::vector<Finding> Verify() const;

 private:
  // Messages of the faults that verify finds.
  std::vector<std::string> Faults() const;

  CheckpointSpec spec_;
  testutil::Scratch scratch_;
  CheckpointFiles files_;
};

// Tensors whose bytes are all 1.
PythonValue F32(int64_t count);
PythonValue BF16(int64_t count);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_CRAFTED_H_

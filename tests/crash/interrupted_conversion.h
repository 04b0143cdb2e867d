// One conversion onto an existing tag, on a simulated disk.
//
// What: a disk on which step 5 of a run was converted to "tag"; converting
//   step 8 over it; and what a reader finds.
// Failures: those of the library.
#ifndef MUONSTORE_TESTS_CRASH_INTERRUPTED_CONVERSION_H_
#define MUONSTORE_TESTS_CRASH_INTERRUPTED_CONVERSION_H_

#include <memory>
#include <string>

#include "converters/make_sink.h"
#include "tests/testutil/simulated_file_system.h"

namespace muonstore::testutil {

class InterruptedConversion {
 public:
  explicit InterruptedConversion(TargetFormat format, bool has_exchange = true);

  // The disk with the old tag, everything durable.
  std::shared_ptr<SimulatedFileSystem> Start() const { return start_->Copy(); }

  // Converts step 8 over the tag and sets `latest`.
  void Convert(const std::shared_ptr<SimulatedFileSystem>& fs) const;

  // All that a reader of the tag can see; "none" where there is no tag. Damage
  // is an Error.
  std::string StateOf(const std::shared_ptr<SimulatedFileSystem>& fs) const;
  const std::string& old_state() const { return old_; }
  const std::string& new_state() const { return new_; }

  // Names in the root that are neither the tag nor `latest`.
  std::string Leftovers(const SimulatedFileSystem& fs) const;

 private:
  void ConvertStep(const std::shared_ptr<SimulatedFileSystem>& fs,
                   const std::string& step) const;

  TargetFormat format_;
  std::shared_ptr<SimulatedFileSystem> start_;
  std::string old_;
  std::string new_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_CRASH_INTERRUPTED_CONVERSION_H_

// One run of ckpt-convert, from its options to its outcome.
//
// What: opens what the options name, decides the target, plans, and unless it
//   is a dry run converts, verifies and sets `latest`.
// Ownership: an Outcome is a plain value.
// Threads: RunJob is called on one thread; what it watches with is called on
//   any, one call at a time.
// Failures: Error, and what a JobWatch throws; nothing of the target is left
//   then.

#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_JOB_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/make_sink.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/convert.h"
#include "muonstore/file_system.h"
#include "tools/ckpt_convert/carry.h"
#include "tools/ckpt_convert/options.h"
#include "tools/ckpt_convert/places.h"

namespace muonstore::tools {

struct Outcome {
  CheckpointInfo source;
  TargetFormat format = TargetFormat::kNative;
  Places places;
  // Absent for formats without ranks.
  std::optional<TargetLayout> layout;
  ConversionPlan plan;               // Notes include those of the layout.
  std::vector<SinkLoss> refused;     // Of a dry run: the real one would stop.
  uint64_t needed_bytes = 0;         // Of free space.
  std::vector<Extra> extras;         // Of the source; see carry.h.
  std::vector<std::string> carried;  // Of these, copied.
  bool latest_written = false;
  bool verified = false;
};

// How a caller follows a run, and stops it in order: each may throw.
struct JobWatch {
  // What is being done ("writing"), bytes done of it and in all.
  std::function<void(const std::string& what, uint64_t done, uint64_t total)>
      progress;
  // Between parts that tell no progress.
  std::function<void()> check;
  // From here on there may be something to clean up.
  std::function<void()> begin_writing;
  // The last moment to stop: the target appears next.
  std::function<void()> before_commit;
};

// Every function of `watch` is given.
Outcome RunJob(const Options& options, const std::shared_ptr<FileSystem>& fs,
               const JobWatch& watch);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_JOB_H_

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "muonstore/error.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/os/io/engine.h"

namespace muonstore::os {
namespace {

// Enough to keep a disk busy.
constexpr int kMaxThreads = 8;
constexpr int kMaxQueueDepth = 4096;

}  // namespace

std::shared_ptr<Engine> MakeEngine(const IoOptions& options) {
  if (options.queue_depth < 1 || options.queue_depth > kMaxQueueDepth) {
    throw Error(ErrorCode::kInvalidArgument, "there is no such queue depth",
                {.expected = StrCat("1 to ", kMaxQueueDepth),
                 .found = StrCat(options.queue_depth)});
  }
  int error = ENOSYS;
  std::unique_ptr<Ring> ring;
  if (options.use_uring) ring = MakeUring(options.queue_depth, &error);
  if (ring == nullptr) {
    const int num_threads = std::min(options.queue_depth, kMaxThreads);
    Log(LogLevel::kWarning, StrCat("io_uring is refused here (",
                                   std::generic_category().message(error),
                                   "): reading and "
                                   "writing by ",
                                   num_threads,
                                   " threads instead, which takes more "
                                   "of the processor"));
    ring = MakeThreadRing(num_threads);
  }
  return std::make_shared<Engine>(std::move(ring), options);
}

}  // namespace muonstore::os

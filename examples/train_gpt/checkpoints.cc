#include "examples/train_gpt/checkpoints.h"

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "muonstore/open.h"
#include "muonstore/resume.h"

namespace train_gpt {
namespace {

bool AreOneFolder(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// The newest checkpoint right below a folder; empty: there is none.
std::string NewestIn(const std::string& folder) {
  try {
    const auto listing =
        muonstore::ListTags(muonstore::PosixFileSystem(), folder);
    // Those of a root further down are in no danger.
    const bool any =
        AreOneFolder(listing.root, folder) && !listing.tags.empty();
    return any ? listing.tags.back().tag : "";
  } catch (const muonstore::Error&) {
    return "";  // No such folder, or none with checkpoints.
  }
}

}  // namespace

void RefuseToReplace(const CheckpointFlags& flags) {
  if (flags.save_every == 0) return;
  const std::string& root = flags.save_directory;
  if (!flags.resume.empty() && AreOneFolder(flags.resume, root)) return;
  const std::string newest = NewestIn(root);
  if (newest.empty()) return;
  throw std::runtime_error(
      root + " holds checkpoints, the newest " + newest +
      ", which this run would replace: go on from them with --resume " + root +
      ", or name another folder with --save-dir");
}

int64_t ResumeRun(const Flags& flags, muonstore::StateStore& store) {
  const muonstore::MomentumConvention asked = store.record().convention;
  const muonstore::ResumeReport report =
      muonstore::Resume(store, flags.checkpoints.resume);
  if (store.record().convention != asked) {
    throw std::runtime_error(
        flags.checkpoints.resume + "/" + report.tag +
        ": its momentum follows the other convention; resume with "
        "--momentum-convention " +
        (flags.optimizer.accumulate ? "lerp" : "accumulate"));
  }
  const int64_t num_steps = store.record().steps + store.record().skipped_steps;
  if (*flags.rank == 0) {
    for (const muonstore::PassedOverTag& tag : report.passed_over) {
      std::printf("passed over %s: %s\n", tag.tag.c_str(), tag.reason.c_str());
    }
    for (const std::string& note : report.load.notes) {
      std::printf("note: %s\n", note.c_str());
    }
    std::printf("resumed from %s/%s after step %lld\n",
                flags.checkpoints.resume.c_str(), report.tag.c_str(),
                static_cast<long long>(num_steps));
  }
  return num_steps;
}

Checkpoints::Checkpoints(const Flags& flags, muonstore::StateStore& store,
                         std::vector<muonstore::GroupHyperParameters> groups)
    : flags_(flags), groups_(std::move(groups)) {
  if (flags.checkpoints.save_every > 0) {
    saver_.emplace(store, flags.checkpoints.save_directory);
  }
}

void Checkpoints::AfterStep(int64_t num_steps) {
  if (!saver_) return;
  if (num_steps % flags_.checkpoints.save_every == 0) {
    Say(/*wait=*/true);
    under_way_ = saver_->Save("step" + std::to_string(num_steps),
                              {.asynchronous = flags_.checkpoints.asynchronous,
                               .overwrite = true,
                               .keep = flags_.checkpoints.keep,
                               .groups = groups_});
  }
  Say(/*wait=*/false);
}

void Checkpoints::Finish() {
  if (!saver_) return;
  Say(/*wait=*/true);
  saver_->Close();
}

void Checkpoints::Say(bool wait) {
  if (!under_way_ || (!wait && !under_way_->done())) return;
  const muonstore::SaveReport& report = under_way_->report();
  if (*flags_.rank == 0) {
    std::printf("saved %s: %.3f s in training, durable after %.3f s\n",
                report.path.c_str(), report.save_s + report.waited_s,
                report.durable_s);
    std::fflush(stdout);
  }
  under_way_.reset();
}

}  // namespace train_gpt

// Going on from the last good checkpoint.
//
// What: `Resume` fills a store from a root of checkpoints of any format that
//   LoadCheckpoint takes, any stage and rank count: from the tag that is asked
//   for (by name, or by its own folder in place of the root), or from the one
//   that `latest` names. Data is compared with its
//   checksums as it is read. Where what `latest` names is damaged, the newest
//   good tag is taken, by one decision of all ranks: what one rank finds
//   damaged, all pass over, and a store that was half filled is filled anew.
// Ownership: nothing is kept.
// Threads: collective, from the thread that steps the store.
// Failures: on every rank. Error(kNotFound): there is no checkpoint, or no
//   folder; Error(kInvalidArgument): no such tag. A tag that is asked for is
//   never replaced by another: its damage is an error, as is, with `strict`,
//   that of what `latest` names. What
//   LoadCheckpoint refuses is an error, too: it has another cause than damage.
//   The store is as it was, or poisoned where reading had begun and nothing
//   good was found.

#ifndef MUONSTORE_RESUME_H_
#define MUONSTORE_RESUME_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/file_system.h"
#include "muonstore/load.h"
#include "muonstore/store.h"

namespace muonstore {

struct ResumeOptions {
  // Empty: what `latest` names; the newest where there is no `latest`.
  std::string tag;
  // No other tag instead of a damaged one.
  bool strict = false;
  LoadOptions load;
  // Null: the operating system's files.
  std::shared_ptr<FileSystem> file_system;
};

struct PassedOverTag {
  std::string tag;  // "latest" where that names none.
  std::string reason;
};

// The same on every rank.
struct ResumeReport {
  std::string tag;
  std::optional<int64_t> step;
  // Newer ones, which are damaged, in the order in which they were tried.
  std::vector<PassedOverTag> passed_over;
  // What LoadCheckpoint says: state that started as zeros, and notes.
  LoadReport load;
  // SaveOptions::scalars of the save.
  ScalarMap scalars;
};

// Collective.
ResumeReport Resume(StateStore& store, const std::string& root,
                    const ResumeOptions& options = {});

}  // namespace muonstore

#endif  // MUONSTORE_RESUME_H_

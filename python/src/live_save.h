// One rank's part of a save of a live run, in the native format.
//
// What: the steps of src/checkpoint/save_job.cc, one call each; what goes
//   between the ranks is the caller's to carry: the save's id, the plan's
//   digest, the ranks' reports.
//     rank 0: Open          makes the folder, locks the root, draws an id
//     all:    Plan          what is written; equal digests on all ranks
//     all:    Write         this rank's file, durable
//     all:    Report        what rank 0 needs to know of it
//     rank 0: Commit        manifest and rename: the tag is there
// Ownership: owns its tables; memory given to Write is the caller's again when
//   that returns. Destroying it closes it.
// Threads: one at a time.
// Failures: Error; see save.h.

#ifndef MUONSTORE_PYTHON_SRC_LIVE_SAVE_H_
#define MUONSTORE_PYTHON_SRC_LIVE_SAVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/native/draft.h"
#include "formats/native/tag_writer.h"
#include "muonstore/file_system.h"
#include "python/src/live_run.h"
#include "src/os/output_root.h"

namespace muonstore::python {

struct LiveSaveOptions {
  std::string root;
  std::string tag;
  bool overwrite = false;
  int zstd_level = 0;
  bool set_latest = true;
  // Afterwards that many native tags stay, the newest; 0: all.
  int32_t keep = 0;
};

// A segment that this rank writes; `name` is that of a single tensor.
struct LiveSegment {
  StateKind kind;
  int32_t flat_group = -1;
  std::string name;
  int64_t num_elements = 0;
};

class LiveSave {
 public:
  LiveSave(const LiveRun& run, LiveSaveOptions options);
  ~LiveSave();
  LiveSave(const LiveSave&) = delete;
  LiveSave& operator=(const LiveSave&) = delete;

  std::string Open();
  uint64_t Plan(const std::string& save_id);
  // After Plan, in the order of writing.
  std::vector<LiveSegment> segments() const;
  // One buffer a segment; `tell` is told bytes done and may throw to stop.
  void Write(std::span<const std::span<const std::byte>> buffers,
             const std::function<void(uint64_t done, uint64_t total)>& tell);
  std::vector<std::byte> Report();
  // `reports` by rank; `carried`: torch files to carry along, by rank.
  void Commit(const std::vector<std::vector<std::byte>>& reports,
              const std::vector<std::string>& carried);
  // Removes what was written, unless it is committed or rank 0 may commit it,
  // and unlocks the root. Later calls of anything else are errors.
  void Close();
  std::string path() const;
  // Of Commit: what a user should know, and the tags that were pruned.
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& pruned() const { return pruned_; }

 private:
  void PruneOldTags();
  void RemoveOwnFile();

  std::shared_ptr<FileSystem> fs_;
  int32_t rank_;
  LiveSaveOptions options_;
  LiveCheckpoint checkpoint_;
  std::string save_id_;
  // Of rank 0. The tag goes before the root.
  std::optional<os::OutputRoot> root_;
  std::optional<native::TagWriter> tag_;
  std::optional<native::Draft> draft_;
  std::vector<std::string> notes_;
  std::vector<std::string> pruned_;
  std::string file_;  // Of this rank; empty: not made, or no longer its own.
};

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_LIVE_SAVE_H_

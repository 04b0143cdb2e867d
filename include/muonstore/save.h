// Saving a live store, also while it steps on.
//
// What: `Saver::Save` writes the state of a step boundary as a native
//   checkpoint `<root>/<tag>`: every rank its own file, then one rename by rank
//   0 makes the tag exist (docs/checkpoints.md has the protocol). Asynchronous
//   saves return once the state is pinned; steps go on and write elsewhere.
// Ownership: a Saver refers to its store, which must outlive it, and owns a
//   thread and its own channel between the ranks. Handles are cheap copies that
//   may be dropped: a save goes on without one.
// Threads: the constructor, Save and Close are collective and come from the
//   thread that steps the store; handles may be used on any thread.
// Failures: Save throws on all ranks, and nothing is written, for a store that
//   is poisoned, a step or lease under way, options that make no sense or
//   differ. What fails later is thrown by the handle's Wait (by Save itself
//   where it is not asynchronous), on every rank: the error of the first rank
//   that met one. The tag, if it existed, and `latest` are then as they were.
//   Error(kUnavailable) where another writer holds the root, and for a rank
//   that is gone or hangs; after the latter a new Saver is needed.

#ifndef MUONSTORE_SAVE_H_
#define MUONSTORE_SAVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/executor.h"
#include "muonstore/file_system.h"
#include "muonstore/store.h"

namespace muonstore {

// The same on every rank.
struct SaveOptions {
  // Return when the state is pinned; steps may go on.
  bool asynchronous = false;
  // Replace a tag of this name, whatever its format. It stays what it is until
  // the new one is whole.
  bool overwrite = false;
  // 0: not compressed; 1 to 19: byte shuffle and zstd.
  int zstd_level = 0;
  // That compress on each rank, 1 to 64; beside steps they share its cores.
  // Each takes 12 MiB.
  int32_t num_threads = 1;
  // Let `latest` name the tag.
  bool set_latest = true;
  // Afterwards keep this many native tags, the newest, and what `latest` names;
  // 0: keep all. See Prune in resume.h.
  int32_t keep = 0;
  // Of the store's param groups, as the executor has them; empty: they are not
  // recorded.
  std::vector<GroupHyperParameters> groups = {};
  // The caller's own values: seeds, samples seen. ResumeReport gives them back.
  ScalarMap scalars = {};
};

struct SaveReport {
  std::string tag;
  // Of the tag.
  std::string path;
  // Of the rank files: all of them, this rank's.
  uint64_t total_bytes = 0;
  uint64_t rank_bytes = 0;
  // Seconds in Save on this rank, waiting for an earlier save included.
  double save_s = 0;
  // Seconds from the call of Save until the tag was durable.
  double durable_s = 0;
  // Seconds that steps and leases on this rank waited for what was not saved
  // yet.
  double waited_s = 0;
  // Rank 0: tags that were pruned.
  std::vector<std::string> pruned;
  // What a user should know: "checkpoint.h5 is left out: ...".
  std::vector<std::string> notes;
};

// A save, under way or done.
class SaveHandle {
 public:
  // Until the tag is durable; throws what went wrong, again on each call.
  void Wait() const;
  bool done() const;
  // Waits.
  const SaveReport& report() const;

 private:
  friend class Saver;
  struct State;
  explicit SaveHandle(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

class Saver {
 public:
  // Collective. `root` is one folder for all ranks; it is made when the first
  // save needs it. Null: the operating system's files.
  Saver(StateStore& store, std::string root,
        std::shared_ptr<FileSystem> file_system = nullptr);
  // Waits for a save under way; its error is logged.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Collective, between steps. Waits for an earlier save to end.
  SaveHandle Save(const std::string& tag, const SaveOptions& options = {});

  // Waits for a save under way; later calls of Save are refused.
  void Close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SAVE_H_

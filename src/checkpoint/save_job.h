// One save, from the snapshot to the commit, on every rank.
//
// What: save_job.cc has the protocol, step by step.
// Ownership: owns the snapshot; refers to the store.
// Threads: Run is collective over a channel of its own, on one thread; nothing
//   else is called meanwhile.
// Failures: Run throws, on every rank, the first rank's error.

#ifndef MUONSTORE_SRC_CHECKPOINT_SAVE_JOB_H_
#define MUONSTORE_SRC_CHECKPOINT_SAVE_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/native/draft.h"
#include "formats/native/tag_writer.h"
#include "muonstore/save.h"
#include "src/checkpoint/store_checkpoint.h"
#include "src/checkpoint/together.h"
#include "src/os/output_root.h"
#include "src/store/snapshot.h"

namespace muonstore {

struct SaveRequest {
  std::string tag;
  std::string root;
  std::shared_ptr<FileSystem> fs;
  SaveOptions options;
};

class SaveJob {
 public:
  SaveJob(const StateStore& store, std::unique_ptr<Snapshot> snapshot,
          SaveRequest request);
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  // Fills tag, path, bytes and what was pruned of the report.
  void Run(Communicator& ranks, SaveReport& report);

 private:
  bool commits() const { return store_.rank() == 0; }
  void Open(Communicator& ranks);
  void Plan(Communicator& ranks);
  SinkFileResources Resources() const;
  void WriteFile(const StopFlag& stop);
  void WriteSegment(native::RankWriter& writer, size_t segment, size_t pinned,
                    const StopFlag& stop);
  void GatherReports(Communicator& ranks);
  void Commit(const StopFlag& stop, SaveReport& report);
  [[noreturn]] void Abandon(Communicator& ranks, const Error& error);
  void RemoveOwnFile();

  const StateStore& store_;
  std::unique_ptr<Snapshot> snapshot_;
  SaveRequest request_;
  StoreCheckpoint source_;
  std::string save_id_;
  // Of rank 0. The tag goes before the root.
  std::optional<os::OutputRoot> root_;
  std::optional<native::TagWriter> tag_;
  std::vector<native::FlatSlot> order_;
  std::optional<native::Draft> draft_;
  std::string file_;  // Of this rank; empty: not made.
  std::vector<std::vector<std::byte>> reports_;  // By rank; on rank 0.
  // Rank 0 may have committed: what this rank wrote is not its to remove.
  bool reported_ = false;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_SAVE_JOB_H_

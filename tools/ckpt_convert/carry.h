// Files of the source that are no part of a checkpoint.
//
// What: finds what lies beside the source's tag and what is unknown in it, and
//   copies that. Copies wait in a hidden folder of the target's root until the
//   tag is there; what the target has already stays.
// Ownership: a StagedCarry must not outlive its root; without Commit() it
//   leaves nothing.
// Threads: one thread. Failures: those of the file system.
#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_CARRY_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_CARRY_H_

#include <functional>
#include <string>
#include <vector>

#include "muonstore/file_system.h"
#include "src/os/output_root.h"
#include "tools/ckpt_convert/places.h"

namespace muonstore::tools {

// A file, link, folder or special file, with the paths of its copy.
struct Extra {
  std::string from;
  std::string to;
  std::string name;         // For people: "config.json", "step5/notes/".
  bool is_there = false;    // The target has something of that name.
  bool is_special = false;  // No copy can be made of it.
};

// Other tags, `latest` and what is ours are left out.
std::vector<Extra> FindExtras(FileSystem& fs, const Places& places);

// For people: the pipes, sockets and devices among what would be copied, which
// a copy leaves out.
std::vector<std::string> FindSpecialFiles(FileSystem& fs,
                                          const std::vector<Extra>& extras);

class StagedCarry {
 public:
  // Copies; `on_block` may throw to stop.
  StagedCarry(os::OutputRoot& root, std::vector<Extra> extras,
              const std::function<void()>& on_block);
  ~StagedCarry();
  StagedCarry(const StagedCarry&) = delete;
  StagedCarry& operator=(const StagedCarry&) = delete;

  // Puts the copies in place; returns the names of those that are new.
  std::vector<std::string> Commit();

  // As Commit() found them.
  const std::vector<Extra>& extras() const { return extras_; }

 private:
  std::string StagedPath(size_t index) const;

  os::OutputRoot& root_;
  std::string staging_;
  std::vector<Extra> extras_;
};

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_CARRY_H_

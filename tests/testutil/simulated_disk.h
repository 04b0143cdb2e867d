// Files and directories as a disk keeps them through a loss of power.
//
// What: every file has its content and what of it was synced; every directory
//   its entries and those that are durable. A restart keeps what was synced,
//   and of everything else a random part: name operations each whole or not at
//   all, writes whole, torn or not at all.
// Ownership: a Disk owns its tree. Copy() is deep.
// Threads: one at a time.
// Failures: Error as FileSystem gives it.
#ifndef MUONSTORE_TESTS_TESTUTIL_SIMULATED_DISK_H_
#define MUONSTORE_TESTS_TESTUTIL_SIMULATED_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muonstore::testutil {

struct SimulatedNode {
  struct Write {
    uint64_t offset_bytes = 0;
    std::string data;
  };
  using Entries = std::map<std::string, std::shared_ptr<SimulatedNode>>;

  explicit SimulatedNode(bool directory) : is_directory(directory) {}

  bool is_directory;
  // A file.
  std::string data;
  std::string synced;
  std::vector<Write> pending;
  // A directory.
  Entries entries;
  Entries durable;
};

using NodePtr = std::shared_ptr<SimulatedNode>;

class SimulatedDisk {
 public:
  SimulatedDisk() : root_(std::make_shared<SimulatedNode>(true)) {}

  // Paths are relative to the disk's root: "a/b"; empty: the root itself.
  NodePtr Find(const std::string& path) const;  // Null: nothing there.
  NodePtr Create(const std::string& path, bool directory);
  void Remove(const std::string& path, bool directory);
  void Rename(const std::string& from, const std::string& to);
  void Exchange(const std::string& a, const std::string& b);
  void SyncDirectory(const std::string& path);

  static void WriteFile(SimulatedNode& file, uint64_t offset_bytes,
                        std::string_view data);
  static void SyncFile(SimulatedNode& file);

  // What is there when the power is back.
  void Restart(uint64_t seed);

  SimulatedDisk Copy() const;

 private:
  // An entry of a directory.
  struct Place {
    NodePtr directory;
    std::string name;
  };
  // One change of names that is not durable yet. Without `to`, `node` is put at
  // `from`, or what is there goes if it is null.
  struct NameChange {
    Place from;
    Place to;
    NodePtr node;
    bool exchange = false;
  };

  Place Locate(const std::string& path) const;
  NodePtr Get(const std::string& path) const;
  static void Apply(const NameChange& change,
                    SimulatedNode::Entries SimulatedNode::*entries);
  void Change(NameChange change);

  NodePtr root_;
  std::vector<NameChange> pending_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_SIMULATED_DISK_H_

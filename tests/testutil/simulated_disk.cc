#include "tests/testutil/simulated_disk.h"

#include <algorithm>
#include <map>

#include "muonstore/error.h"

namespace muonstore::testutil {
namespace {

using Entries = SimulatedNode::Entries;

[[noreturn]] void Fail(ErrorCode code, const std::string& message,
                       const std::string& path) {
  throw Error(code, message, {.file = path});
}

void WriteInto(std::string& data, uint64_t offset, std::string_view bytes) {
  data.resize(std::max<size_t>(data.size(), offset + bytes.size()), '\0');
  data.replace(offset, bytes.size(), bytes);
}

// Whole, torn or not at all.
void KeepSomeWrites(SimulatedNode& file, std::mt19937_64& random) {
  std::string data = file.synced;
  for (const SimulatedNode::Write& write : file.pending) {
    std::string_view bytes = write.data;
    const uint64_t fate = random() % 3;
    if (fate == 0) continue;
    if (fate == 1) bytes = bytes.substr(0, random() % (bytes.size() + 1));
    WriteInto(data, write.offset_bytes, bytes);
  }
  file.data = data;
  file.synced = std::move(data);
  file.pending.clear();
}

// From the durable entries down: that is what there is now.
void Settle(SimulatedNode& node, std::mt19937_64& random) {
  if (!node.is_directory) {
    KeepSomeWrites(node, random);
    return;
  }
  node.entries = node.durable;
  for (const auto& [name, child] : node.entries) Settle(*child, random);
}

using Copies = std::map<const SimulatedNode*, NodePtr>;

NodePtr CopyNode(const NodePtr& node, Copies& copies) {
  if (node == nullptr) return nullptr;
  NodePtr& copy = copies[node.get()];
  if (copy != nullptr) return copy;
  copy = std::make_shared<SimulatedNode>(node->is_directory);
  const NodePtr result = copy;
  result->data = node->data;
  result->synced = node->synced;
  result->pending = node->pending;
  for (const auto& [name, child] : node->entries) {
    result->entries[name] = CopyNode(child, copies);
  }
  for (const auto& [name, child] : node->durable) {
    result->durable[name] = CopyNode(child, copies);
  }
  return result;
}

}  // namespace

NodePtr SimulatedDisk::Find(const std::string& path) const {
  NodePtr node = root_;
  for (size_t at = 0; at < path.size() && node != nullptr;) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    at = end + 1;
    if (name.empty() || name == ".") continue;
    const auto child = node->entries.find(name);
    node = child == node->entries.end() ? nullptr : child->second;
  }
  return node;
}

NodePtr SimulatedDisk::Get(const std::string& path) const {
  NodePtr node = Find(path);
  if (node == nullptr) Fail(ErrorCode::kNotFound, "no such file", path);
  return node;
}

SimulatedDisk::Place SimulatedDisk::Locate(const std::string& path) const {
  const size_t slash = path.rfind('/');
  const std::string parent =
      slash == std::string::npos ? "" : path.substr(0, slash);
  Place place{Find(parent),
              slash == std::string::npos ? path : path.substr(slash + 1)};
  if (place.directory == nullptr || !place.directory->is_directory) {
    Fail(ErrorCode::kNotFound, "no such directory", parent);
  }
  return place;
}

void SimulatedDisk::Apply(const NameChange& change,
                          Entries SimulatedNode::*entries) {
  Entries& from = (*change.from.directory).*entries;
  if (change.to.directory == nullptr) {
    if (change.node != nullptr) {
      from[change.from.name] = change.node;
    } else {
      from.erase(change.from.name);
    }
    return;
  }
  Entries& to = (*change.to.directory).*entries;
  const auto moved = from.find(change.from.name);
  if (moved == from.end()) return;  // It never became durable.
  const auto replaced = to.find(change.to.name);
  if (change.exchange) {
    if (replaced != to.end()) std::swap(moved->second, replaced->second);
    return;
  }
  if (replaced != to.end() && replaced->second->is_directory &&
      !((*replaced->second).*entries).empty()) {
    return;  // Its emptying never became durable.
  }
  const NodePtr node = moved->second;
  from.erase(moved);
  to[change.to.name] = node;
}

void SimulatedDisk::Change(NameChange change) {
  Apply(change, &SimulatedNode::entries);
  pending_.push_back(std::move(change));
}

NodePtr SimulatedDisk::Create(const std::string& path, bool directory) {
  const Place place = Locate(path);
  if (place.directory->entries.contains(place.name)) {
    Fail(ErrorCode::kInvalidArgument, "exists already", path);
  }
  auto node = std::make_shared<SimulatedNode>(directory);
  Change({.from = place, .node = node});
  return node;
}

void SimulatedDisk::Remove(const std::string& path, bool directory) {
  const NodePtr node = Get(path);
  if (node->is_directory != directory || !node->entries.empty()) {
    Fail(ErrorCode::kUnavailable, "cannot be removed", path);
  }
  Change({.from = Locate(path)});
}

void SimulatedDisk::Rename(const std::string& from, const std::string& to) {
  const NodePtr node = Get(from);
  const NodePtr replaced = Find(to);
  if (replaced != nullptr && (replaced->is_directory != node->is_directory ||
                              !replaced->entries.empty())) {
    Fail(ErrorCode::kUnavailable, "cannot be replaced", to);
  }
  Change({.from = Locate(from), .to = Locate(to)});
}

void SimulatedDisk::Exchange(const std::string& a, const std::string& b) {
  (void)Get(a);
  (void)Get(b);
  Change({.from = Locate(a), .to = Locate(b), .exchange = true});
}

void SimulatedDisk::SyncDirectory(const std::string& path) {
  const NodePtr directory = Get(path);
  std::erase_if(pending_, [&](const NameChange& change) {
    const bool is_here =
        change.from.directory == directory || change.to.directory == directory;
    if (is_here) Apply(change, &SimulatedNode::durable);
    return is_here;
  });
}

void SimulatedDisk::WriteFile(SimulatedNode& file, uint64_t offset_bytes,
                              std::string_view data) {
  WriteInto(file.data, offset_bytes, data);
  file.pending.push_back({offset_bytes, std::string(data)});
}

void SimulatedDisk::SyncFile(SimulatedNode& file) {
  file.synced = file.data;
  file.pending.clear();
}

void SimulatedDisk::Restart(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const NameChange& change : pending_) {
    if (random() % 2 == 0) Apply(change, &SimulatedNode::durable);
  }
  pending_.clear();
  Settle(*root_, random);
}

SimulatedDisk SimulatedDisk::Copy() const {
  Copies copies;
  SimulatedDisk disk;
  disk.root_ = CopyNode(root_, copies);
  for (const NameChange& change : pending_) {
    const auto copy_place = [&](const Place& place) {
      return Place{CopyNode(place.directory, copies), place.name};
    };
    disk.pending_.push_back({copy_place(change.from), copy_place(change.to),
                             CopyNode(change.node, copies), change.exchange});
  }
  return disk;
}

}  // namespace muonstore::testutil

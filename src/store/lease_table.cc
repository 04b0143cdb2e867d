#include "src/store/lease_table.h"

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {

LeaseTable::LeaseTable(const std::vector<ParameterSpec>& parameters)
    : parameters_(parameters),
      entries_(parameters.size() * kStoreKinds.size()) {}

LeaseTable::Entry& LeaseTable::at(int32_t parameter, std::string_view kind) {
  return entries_[static_cast<size_t>(parameter) * kStoreKinds.size() +
                  StoreKindIndex(kind)];
}

const LeaseTable::Entry& LeaseTable::at(int32_t parameter,
                                        std::string_view kind) const {
  return entries_[static_cast<size_t>(parameter) * kStoreKinds.size() +
                  StoreKindIndex(kind)];
}

std::string LeaseTable::NameOf(const Entry& entry) const {
  const auto at = static_cast<size_t>(&entry - entries_.data());
  return TensorKey{parameters_[at / kStoreKinds.size()].name,
                   std::string(kStoreKinds[at % kStoreKinds.size()])}
      .ToString();
}

void LeaseTable::RequireNotExclusive(const Entry& entry) const {
  if (!exclusive_) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a step is running; take leases between steps",
              {.tensor = NameOf(entry)});
}

LeaseTable::Exclusive::Exclusive(LeaseTable& table, std::string_view what)
    : table_(table) {
  const std::lock_guard lock(table_.mutex_);
  table_.RequireNoLease(what);
  table_.RequireWritable(what);
  if (table_.exclusive_) {
    throw Error(ErrorCode::kInvalidArgument, "a step is running already");
  }
  table_.exclusive_ = true;
}

LeaseTable::Exclusive::~Exclusive() {
  const std::lock_guard lock(table_.mutex_);
  table_.exclusive_ = false;
}

LeaseTable::SnapshotMark::SnapshotMark(LeaseTable& table, int64_t step,
                                       bool keeps_writers_away)
    : table_(table), step_(step), keeps_writers_away_(keeps_writers_away) {
  const std::lock_guard lock(table_.mutex_);
  if (table_.exclusive_) {
    throw Error(ErrorCode::kInvalidArgument,
                "a step is running; take snapshots between steps");
  }
  if (keeps_writers_away) {
    table_.RequireNoWriter();
    ++table_.num_keeping_writers_away_;
  }
  table_.snapshot_steps_.insert(step);
}

LeaseTable::SnapshotMark::~SnapshotMark() {
  const std::lock_guard lock(table_.mutex_);
  table_.snapshot_steps_.erase(table_.snapshot_steps_.find(step_));
  table_.num_keeping_writers_away_ -= keeps_writers_away_ ? 1 : 0;
}

void LeaseTable::RequireNoSnapshot(std::string_view what) const {
  const std::lock_guard lock(mutex_);
  if (snapshot_steps_.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("a snapshot of step ", *snapshot_steps_.begin(),
                     " is being saved during ", what,
                     "; wait for the save to end, or drop it"));
}

void LeaseTable::RequireWritable(std::string_view what) const {
  if (num_keeping_writers_away_ == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("a save is under way that is not asynchronous: ", what,
                     " has to wait until it has ended"));
}

void LeaseTable::RequireNoWriter() const {
  if (num_leases_ == 0) return;
  for (const Entry& entry : entries_) {
    if (entry.writer) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a write lease is held during a save; commit or drop it "
                  "first",
                  {.tensor = NameOf(entry)});
    }
  }
}

uint64_t LeaseTable::AcquireRead(int32_t parameter, std::string_view kind) {
  const std::lock_guard lock(mutex_);
  Entry& entry = at(parameter, kind);
  RequireNotExclusive(entry);
  if (entry.writer) {
    throw Error(ErrorCode::kInvalidArgument,
                "a write lease is held on this tensor; commit or drop it first",
                {.tensor = NameOf(entry)});
  }
  ++entry.readers;
  ++num_leases_;
  return entry.generation;
}

uint64_t LeaseTable::AcquireWrite(int32_t parameter, std::string_view kind) {
  const std::lock_guard lock(mutex_);
  Entry& entry = at(parameter, kind);
  RequireNotExclusive(entry);
  RequireWritable("a write lease");
  if (entry.writer || entry.readers > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(entry.writer ? "another write lease is"
                                    : StrCat(entry.readers, " read leases are"),
                       " held on this tensor; drop them before writing"),
                {.tensor = NameOf(entry)});
  }
  entry.writer = true;
  ++num_leases_;
  return entry.generation;
}

void LeaseTable::ReleaseRead(int32_t parameter, std::string_view kind) {
  const std::lock_guard lock(mutex_);
  --at(parameter, kind).readers;
  --num_leases_;
}

void LeaseTable::ReleaseWrite(int32_t parameter, std::string_view kind,
                              bool committed) {
  const std::lock_guard lock(mutex_);
  Entry& entry = at(parameter, kind);
  entry.writer = false;
  entry.generation += committed ? 1 : 0;
  entry.written_since_step |= committed;
  --num_leases_;
}

uint64_t LeaseTable::generation(int32_t parameter,
                                std::string_view kind) const {
  const std::lock_guard lock(mutex_);
  return at(parameter, kind).generation;
}

bool LeaseTable::written_since_step(int32_t parameter,
                                    std::string_view kind) const {
  const std::lock_guard lock(mutex_);
  return at(parameter, kind).written_since_step;
}

void LeaseTable::RequireNone(std::string_view what) const {
  const std::lock_guard lock(mutex_);
  RequireNoLease(what);
}

void LeaseTable::RequireNoLease(std::string_view what) const {
  if (num_leases_ == 0) return;
  for (const Entry& entry : entries_) {
    if (entry.writer || entry.readers > 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          StrCat("a lease is held during ", what, "; drop all leases first"),
          {.tensor = NameOf(entry)});
    }
  }
}

void LeaseTable::Advance(int32_t parameter, std::string_view kind) {
  const std::lock_guard lock(mutex_);
  Entry& entry = at(parameter, kind);
  ++entry.generation;
  entry.written_since_step = false;
}

}  // namespace muonstore

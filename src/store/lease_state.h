// What a lease holds: memory of one tensor on this rank.
//
// Ownership: a reader's pieces are the store's memory where the segment is in a
//   host tier, else of the lease; a writer's are always of the lease.
// Threads, failures: as muonstore/lease.h says. Reading from a tier that fails
//   changes nothing; a commit whose write fails poisons the store.

#ifndef MUONSTORE_SRC_STORE_LEASE_STATE_H_
#define MUONSTORE_SRC_STORE_LEASE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/lease.h"
#include "src/base/aligned_bytes.h"
#include "src/store/segments.h"
#include "src/store/store_impl.h"

namespace muonstore {

enum class LeaseUse {
  kRead,
  kWrite,      // Starts from what there is.
  kOverwrite,  // Starts from anything: everything will be written.
};

class LeaseState {
 public:
  LeaseState(StateStore::Impl& store, int32_t parameter, std::string_view kind,
             LeaseUse use);
  ~LeaseState();
  LeaseState(const LeaseState&) = delete;
  LeaseState& operator=(const LeaseState&) = delete;

  void Commit();
  void RequireLive() const;

  StateStore::Impl& store;
  const int32_t parameter;
  const std::string_view kind;
  const bool writer;
  TensorKey key;
  DType dtype;
  uint64_t generation = 0;
  std::vector<StatePiece<std::byte>> pieces;

 private:
  void AddPieces(LeaseUse use);
  void WritePieces();
  void Release(bool committed);
  bool IsInPlace(const Fragment& fragment) const;
  size_t PieceBytes(const Fragment& fragment) const;
  uint64_t OffsetBytes(const Fragment& fragment) const;
  size_t PlaceInCopy(const Fragment& fragment, size_t first_free) const;

  // Of pieces that are not the store's memory.
  AlignedBytes copy_;
  // Of pieces that are.
  std::vector<PinnedSegment> pins_;
  bool live_ = true;
};

// Writes all of this rank's part of a tensor as one commit, without reading
// what it was: `fill` gets pieces whose content is not defined, and fills them.
// What it throws leaves the tensor as it was.
void Overwrite(
    StateStore::Impl& store, int32_t parameter, std::string_view kind,
    const std::function<void(std::span<const StatePiece<std::byte>>)>& fill);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_LEASE_STATE_H_

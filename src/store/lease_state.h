// What a lease holds: memory of one tensor on this rank.

#ifndef MUONSTORE_SRC_STORE_LEASE_STATE_H_
#define MUONSTORE_SRC_STORE_LEASE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "muonstore/lease.h"
#include "src/store/store_impl.h"

namespace muonstore {

class LeaseState {
 public:
  LeaseState(StateStore::Impl& store, int32_t parameter, std::string_view kind,
             bool writer);
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
  // A writer's own copy of all pieces, one behind the other.
  std::vector<std::byte> copy_;
  bool live_ = true;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_LEASE_STATE_H_

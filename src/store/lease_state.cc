#include "src/store/lease_state.h"

#include <algorithm>
#include <new>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/agreement.h"

namespace muonstore {

LeaseState::LeaseState(StateStore::Impl& store_in, int32_t parameter_in,
                       std::string_view kind_in, LeaseUse use)
    : store(store_in),
      parameter(parameter_in),
      kind(kind_in),
      writer(use != LeaseUse::kRead),
      key(store.key(parameter, kind)),
      dtype(store.dtype(parameter, kind)) {
  generation = writer ? store.leases.AcquireWrite(parameter, kind)
                      : store.leases.AcquireRead(parameter, kind);
  const std::optional<Error> error = Caught([&] { AddPieces(use); });
  if (error.has_value()) {
    pins_.clear();
    Release(false);
    throw error->WithTensor(key.ToString());
  }
}

LeaseState::~LeaseState() {
  // The pins refer to the store's segments, which an end of the last lease lets
  // go.
  pins_.clear();
  if (live_) Release(false);
}

void LeaseState::Release(bool committed) {
  live_ = false;
  if (writer) {
    store.leases.ReleaseWrite(parameter, kind, committed);
  } else {
    store.leases.ReleaseRead(parameter, kind);
  }
}

uint64_t LeaseState::OffsetBytes(const Fragment& fragment) const {
  return static_cast<uint64_t>(fragment.segment_offset) *
         static_cast<uint64_t>(SizeBytes(dtype));
}

void LeaseState::AddPieces(LeaseUse use) {
  const auto size_of = [&](const Fragment& fragment) {
    return static_cast<size_t>(fragment.num_elements()) *
           static_cast<size_t>(SizeBytes(dtype));
  };
  const auto in_place = [&](const Fragment& fragment) {
    return !writer &&
           store.segments->addressable(kind, store.flat_group_of(fragment));
  };
  size_t copy_bytes = 0;
  for (const Fragment& fragment : store.local_fragments(parameter)) {
    if (!in_place(fragment)) copy_bytes += size_of(fragment);
  }
  copy_.resize(copy_bytes);
  std::vector<PinnedSegment> loading;
  std::vector<PendingPtr> reads;
  std::span<std::byte> left = copy_;
  for (const Fragment& fragment : store.local_fragments(parameter)) {
    const size_t size = size_of(fragment);
    if (in_place(fragment)) {
      pins_.push_back(store.segments->Pin(kind, store.flat_group_of(fragment),
                                          PinPurpose::kLease));
      pieces.push_back({fragment, pins_.back().memory().subspan(
                                      OffsetBytes(fragment), size)});
      continue;
    }
    pieces.push_back({fragment, left.first(size)});
    left = left.subspan(size);
    if (use == LeaseUse::kOverwrite) continue;
    loading.push_back(store.segments->Pin(kind, store.flat_group_of(fragment),
                                          PinPurpose::kLease));
    reads.push_back(
        loading.back().Read(OffsetBytes(fragment), pieces.back().data));
  }
  for (const PendingPtr& read : reads) read->Wait();
}

void LeaseState::RequireLive() const {
  if (!live_) {
    throw Error(ErrorCode::kInvalidArgument,
                "this lease was committed already; take a new one",
                {.tensor = key.ToString()});
  }
}

void LeaseState::WritePieces() {
  std::vector<PendingPtr> writes;
  for (const StatePiece<std::byte>& piece : pieces) {
    writes.push_back(
        store.segments->Write(kind, store.flat_group_of(piece.fragment),
                              OffsetBytes(piece.fragment), piece.data));
  }
  for (const PendingPtr& write : writes) write->Wait();
}

void LeaseState::Commit() {
  RequireLive();
  store.RequireUsable();
  const std::lock_guard lock(store.commit_mutex);
  for (const StatePiece<std::byte>& piece : pieces) {
    store.segments->BeginPartialWrite(kind,
                                      store.flat_group_of(piece.fragment));
  }
  try {
    WritePieces();
  } catch (const std::exception& error) {
    store.Poison(StrCat("writing ", key.ToString(), ": ", error.what()));
    throw;
  }
  pieces.clear();
  Release(true);
}

void Overwrite(
    StateStore::Impl& store, int32_t parameter, std::string_view kind,
    const std::function<void(std::span<const StatePiece<std::byte>>)>& fill) {
  store.RequireUsable();
  LeaseState lease(store, parameter, kind, LeaseUse::kOverwrite);
  fill(lease.pieces);
  lease.Commit();
}

}  // namespace muonstore

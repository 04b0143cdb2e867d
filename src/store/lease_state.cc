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

size_t LeaseState::PieceBytes(const Fragment& fragment) const {
  return static_cast<size_t>(fragment.num_elements()) *
         static_cast<size_t>(SizeBytes(dtype));
}

bool LeaseState::IsInPlace(const Fragment& fragment) const {
  return !writer &&
         store.segments->addressable(kind, store.flat_group_of(fragment));
}

// As far behind a page as the piece lies in its segment: tiers of files then
// need no copy of most of it.
size_t LeaseState::PlaceInCopy(const Fragment& fragment,
                               size_t first_free) const {
  constexpr size_t kPage = AlignedBytes::kAlignment;
  return (first_free + kPage - 1) / kPage * kPage +
         static_cast<size_t>(OffsetBytes(fragment) % kPage);
}

void LeaseState::AddPieces(LeaseUse use) {
  size_t copy_bytes = 0;
  for (const Fragment& fragment : store.local_fragments(parameter)) {
    if (IsInPlace(fragment)) continue;
    copy_bytes = PlaceInCopy(fragment, copy_bytes) + PieceBytes(fragment);
  }
  copy_ = AlignedBytes(copy_bytes);
  std::vector<PinnedSegment> loading;
  std::vector<PendingPtr> reads;
  size_t used = 0;
  for (const Fragment& fragment : store.local_fragments(parameter)) {
    const size_t size = PieceBytes(fragment);
    const uint64_t offset = OffsetBytes(fragment);
    const auto pin = [&] {
      return store.segments->Pin(kind, store.flat_group_of(fragment),
                                 PinPurpose::kLease);
    };
    if (IsInPlace(fragment)) {
      pins_.push_back(pin());
      pieces.push_back({fragment, pins_.back().memory().subspan(offset, size)});
      continue;
    }
    const size_t place = PlaceInCopy(fragment, used);
    pieces.push_back({fragment, copy_.span().subspan(place, size)});
    used = place + size;
    if (use == LeaseUse::kOverwrite) continue;
    loading.push_back(pin());
    reads.push_back(loading.back().Read(offset, pieces.back().data));
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

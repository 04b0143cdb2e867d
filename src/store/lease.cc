#include "muonstore/lease.h"

#include <algorithm>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/lease_state.h"

namespace muonstore {
namespace {

size_t TotalBytes(std::span<const StatePiece<std::byte>> pieces) {
  size_t total = 0;
  for (const auto& piece : pieces) total += piece.data.size();
  return total;
}

std::string RanksText(const StateStore::Impl& store, int32_t parameter) {
  std::vector<int32_t> ranks;
  for (const Fragment& fragment : store.partitioning.fragments(parameter)) {
    const int32_t rank = store.rank_of(fragment);
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  }
  return FormatRanges(ranks);
}

}  // namespace

LeaseState::LeaseState(StateStore::Impl& store_in, int32_t parameter_in,
                       std::string_view kind_in, bool writer_in)
    : store(store_in),
      parameter(parameter_in),
      kind(kind_in),
      writer(writer_in),
      key(store.key(parameter, kind)),
      dtype(store.dtype(parameter, kind)) {
  for (const Fragment& fragment : store.local_fragments(parameter)) {
    pieces.push_back({fragment, store.memory(fragment, kind, dtype)});
  }
  if (writer) copy_.reserve(TotalBytes(pieces));
  generation = writer ? store.leases.AcquireWrite(parameter, kind)
                      : store.leases.AcquireRead(parameter, kind);
  if (!writer) return;
  for (StatePiece<std::byte>& piece : pieces) {
    const size_t offset = copy_.size();
    copy_.insert(copy_.end(), piece.data.begin(), piece.data.end());
    piece.data = {copy_.data() + offset, piece.data.size()};
  }
}

LeaseState::~LeaseState() {
  if (!live_) return;
  if (writer) {
    store.leases.ReleaseWrite(parameter, kind, false);
  } else {
    store.leases.ReleaseRead(parameter, kind);
  }
}

void LeaseState::RequireLive() const {
  if (!live_) {
    throw Error(ErrorCode::kInvalidArgument,
                "this lease was committed already; take a new one",
                {.tensor = key.ToString()});
  }
}

void LeaseState::Commit() {
  RequireLive();
  store.RequireUsable();
  for (const StatePiece<std::byte>& piece : pieces) {
    std::copy(piece.data.begin(), piece.data.end(),
              store.memory(piece.fragment, kind, dtype).begin());
  }
  live_ = false;
  pieces.clear();
  store.leases.ReleaseWrite(parameter, kind, true);
}

Lease::Lease(std::unique_ptr<LeaseState> state) : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;
Lease::~Lease() = default;

const TensorKey& Lease::key() const { return state_->key; }

const Shape& Lease::shape() const {
  return state_->store.parameters[static_cast<size_t>(state_->parameter)].shape;
}

DType Lease::dtype() const { return state_->dtype; }

uint64_t Lease::generation() const { return state_->generation; }

StridedView<std::byte> Lease::MatrixAt(int32_t batch, int64_t first,
                                       int64_t count) const {
  state_->RequireLive();
  const ParameterSpec& spec =
      state_->store.parameters[static_cast<size_t>(state_->parameter)];
  const auto batches = spec.layout.Resolve(spec.shape);
  if (batch < 0 || static_cast<size_t>(batch) >= batches.size() || first < 0 ||
      count < 1 || count > batches[static_cast<size_t>(batch)].batch - first) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("layout ", spec.layout.ToString(),
                       " has no such matrices: batch ", batch, ", ", count,
                       " from ", first),
                {.tensor = state_->key.ToString()});
  }
  const MatrixBatch& of = batches[static_cast<size_t>(batch)];
  const int64_t begin = of.row_offset(first, 0);
  const int64_t end = of.row_offset(first + count - 1, of.rows - 1) + of.cols;
  for (const StatePiece<std::byte>& piece : state_->pieces) {
    const int64_t piece_begin = piece.fragment.tensor_offset;
    if (piece.fragment.count != 1 || piece_begin > begin ||
        piece_begin + piece.fragment.length < end) {
      continue;
    }
    return {.data = piece.data.data() +
                    (begin - piece_begin) * SizeBytes(state_->dtype),
            .dtype = state_->dtype,
            .batch = count,
            .rows = of.rows,
            .cols = of.cols,
            .batch_stride = of.batch_stride,
            .row_stride = of.row_stride,
            .block_rows = of.block_rows == 0 ? of.rows : of.block_rows,
            .block_stride = of.block_stride};
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      StrCat("rank ", state_->store.communicator->rank(),
             " does not hold these matrices as a whole: the tensor lies on "
             "ranks ",
             RanksText(state_->store, state_->parameter),
             "; StateStore::Gather gathers it"),
      {.tensor = state_->key.ToString()});
}

std::vector<StatePiece<const std::byte>> ReadLease::pieces() const {
  state_->RequireLive();
  std::vector<StatePiece<const std::byte>> pieces;
  for (const auto& piece : state_->pieces) {
    pieces.push_back({piece.fragment, piece.data});
  }
  return pieces;
}

StridedView<const std::byte> ReadLease::Matrices(int32_t batch, int64_t first,
                                                 int64_t count) const {
  const StridedView<std::byte> view = MatrixAt(batch, first, count);
  return {view.data,       view.dtype,      view.batch,
          view.rows,       view.cols,       view.batch_stride,
          view.row_stride, view.block_rows, view.block_stride};
}

std::vector<StatePiece<std::byte>> WriteLease::pieces() const {
  state_->RequireLive();
  return state_->pieces;
}

StridedView<std::byte> WriteLease::Matrices(int32_t batch, int64_t first,
                                            int64_t count) const {
  return MatrixAt(batch, first, count);
}

void WriteLease::Commit() { state_->Commit(); }

}  // namespace muonstore

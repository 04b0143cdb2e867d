#include "muonstore/lease.h"

#include <string>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/lease_state.h"

namespace muonstore {
namespace {

std::string RanksText(const StateStore::Impl& store, int32_t parameter) {
  std::vector<int32_t> ranks;
  for (const Fragment& fragment : store.partitioning.fragments(parameter)) {
    const int32_t rank = store.rank_of(fragment);
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
  }
  return FormatRanges(ranks);
}

}  // namespace

Lease::Lease(std::unique_ptr<LeaseState> state) : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;
Lease::~Lease() = default;

LeaseState& Lease::state() const {
  if (state_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "this lease was moved from; use the one that it was moved to");
  }
  return *state_;
}

const TensorKey& Lease::key() const { return state().key; }

const Shape& Lease::shape() const {
  const LeaseState& of = state();
  return of.store.parameters[static_cast<size_t>(of.parameter)].shape;
}

DType Lease::dtype() const { return state().dtype; }

uint64_t Lease::generation() const { return state().generation; }

StridedView<std::byte> Lease::MatrixAt(int32_t batch, int64_t first,
                                       int64_t count) const {
  state().RequireLive();
  const ParameterSpec& spec =
      state().store.parameters[static_cast<size_t>(state().parameter)];
  const auto batches = spec.layout.Resolve(spec.shape);
  if (batch < 0 || static_cast<size_t>(batch) >= batches.size() || first < 0 ||
      count < 1 || count > batches[static_cast<size_t>(batch)].batch - first) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("layout ", spec.layout.ToString(),
                       " has no such matrices: batch ", batch, ", ", count,
                       " from ", first),
                {.tensor = state().key.ToString()});
  }
  const MatrixBatch& of = batches[static_cast<size_t>(batch)];
  const int64_t begin = of.row_offset(first, 0);
  const int64_t end = of.row_offset(first + count - 1, of.rows - 1) + of.cols;
  for (const StatePiece<std::byte>& piece : state().pieces) {
    const int64_t piece_begin = piece.fragment.tensor_offset;
    if (piece.fragment.count != 1 || piece_begin > begin ||
        piece_begin + piece.fragment.length < end) {
      continue;
    }
    return {.data = piece.data.data() +
                    (begin - piece_begin) * SizeBytes(state().dtype),
            .dtype = state().dtype,
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
      StrCat("rank ", state().store.communicator->rank(),
             " does not hold these matrices as a whole: the tensor lies on "
             "ranks ",
             RanksText(state().store, state().parameter),
             "; StateStore::Gather gathers it"),
      {.tensor = state().key.ToString()});
}

std::vector<StatePiece<const std::byte>> ReadLease::pieces() const {
  state().RequireLive();
  std::vector<StatePiece<const std::byte>> pieces;
  for (const auto& piece : state().pieces) {
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
  state().RequireLive();
  return state().pieces;
}

StridedView<std::byte> WriteLease::Matrices(int32_t batch, int64_t first,
                                            int64_t count) const {
  return MatrixAt(batch, first, count);
}

void WriteLease::Commit() { state().Commit(); }

}  // namespace muonstore

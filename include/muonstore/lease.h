// Borrowed state: what a rank holds of a tensor, for reading or for writing.
//
// What: a lease gives the pieces of a tensor that lie on this rank as memory,
//   and those of its matrices that lie on this rank as a whole as strided
//   views. Many readers or one writer may hold leases on a tensor at a time. A
//   writer works on a copy: Commit makes it the next generation, dropping the
//   lease leaves the tensor as it was.
// Ownership: the memory is the store's (readers, where the state lies in host
//   memory) or the lease's (writers, and readers of state on NVMe, who take as
//   much as the pieces have) and valid while the lease lives. A lease must not
//   outlive its store.
// Threads: one thread at a time a lease; leases of one store may be taken and
//   dropped on many threads.
// Failures: Error(kInvalidArgument) for a lease that conflicts, a matrix that
//   is not on this rank as a whole, a lease that was committed already or moved
//   from. A device that fails: Error(kUnavailable) from taking a lease, and the
//   store stays usable; from Commit, and the store is poisoned where a part may
//   have been written.

#ifndef MUONSTORE_LEASE_H_
#define MUONSTORE_LEASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/fragment.h"
#include "muonstore/shape.h"
#include "muonstore/state_kind.h"

namespace muonstore {

// Matrices in memory: element (b, i, j) is data[b * batch_stride +
// (i / block_rows) * block_stride + (i % block_rows) * row_stride + j];
// block_rows == rows where rows are equally spaced. Strides count elements.
template <typename Byte>
struct StridedView {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t block_rows = 0;
  int64_t block_stride = 0;
};

// A piece of a tensor in memory: the fragment says which elements.
template <typename Byte>
struct StatePiece {
  Fragment fragment;
  std::span<Byte> data;
};

class LeaseState;  // src/store

class Lease {
 public:
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  virtual ~Lease();

  const TensorKey& key() const;
  const Shape& shape() const;
  DType dtype() const;
  // The generation that a reader sees or a writer started from.
  uint64_t generation() const;

 protected:
  explicit Lease(std::unique_ptr<LeaseState> state);
  LeaseState& state() const;
  StridedView<std::byte> MatrixAt(int32_t batch, int64_t first,
                                  int64_t count) const;

 private:
  std::unique_ptr<LeaseState> state_;
};

class ReadLease : public Lease {
 public:
  // Ascending by element; empty where this rank holds nothing of the tensor.
  std::vector<StatePiece<const std::byte>> pieces() const;
  // Matrices [first, first + count) of batch `batch` of the parameter's layout
  // (muonstore/matrix_layout.h), which must lie on this rank as a whole; the
  // error names the ranks that hold it, and StateStore::Gather gathers it.
  StridedView<const std::byte> Matrices(int32_t batch, int64_t first,
                                        int64_t count) const;

 private:
  friend class StateStore;
  using Lease::Lease;
};

class WriteLease : public Lease {
 public:
  std::vector<StatePiece<std::byte>> pieces() const;
  StridedView<std::byte> Matrices(int32_t batch, int64_t first,
                                  int64_t count) const;
  // Makes what was written the tensor's next generation and ends the lease.
  // Waits for an asynchronous save of what it is about to write, where there is
  // no memory to keep both.
  void Commit();

 private:
  friend class StateStore;
  using Lease::Lease;
};

}  // namespace muonstore

#endif  // MUONSTORE_LEASE_H_

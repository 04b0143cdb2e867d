// One asynchronous read or write, cut into pieces that a Ring carries out.
//
// What: a Transfer counts its pieces, keeps the first error and is what a
//   handle waits for. A Piece knows what the next request of it is, and from a
//   request's result whether another one must follow: short transfers go on
//   where they stopped, interrupted ones again.
// Ownership: every piece and the handle share the transfer, which keeps the
//   file open until it is done.
// Threads: a piece belongs to one thread at a time; a transfer to many.
// Failures: Wait throws Error with file and offset: kDataLoss where a file ends
//   too early, kResourceExhausted where space does, else kUnavailable.
#ifndef MUONSTORE_SRC_OS_IO_TRANSFER_H_
#define MUONSTORE_SRC_OS_IO_TRANSFER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "muonstore/pending.h"
#include "src/os/file_descriptor.h"
#include "src/os/io/ring.h"

namespace muonstore::os {

// Descriptors of one file.
struct OpenFile {
  std::string path;
  FileDescriptor fd;
  // With O_DIRECT; invalid where the file system has none.
  FileDescriptor direct_fd;
  // Called where that takes no transfers after all; may be empty.
  std::function<void()> on_not_direct = {};
};
using OpenFilePtr = std::shared_ptr<OpenFile>;

struct TransferRequest {
  bool is_write = false;
  uint64_t offset_bytes = 0;
  std::byte* data = nullptr;
  size_t size_bytes = 0;
};

class Transfer {
 public:
  Transfer(OpenFilePtr file, const TransferRequest& request);

  // Until it is done.
  OpenFile& file() const { return *file_; }
  const TransferRequest& request() const { return request_; }

  // Before the pieces are given away.
  void SetNumPieces(size_t count) { num_left_ = count; }
  // One piece is through.
  void PieceDone(std::exception_ptr error);

  void Wait();
  bool done() const;

 private:
  OpenFilePtr file_;
  TransferRequest request_;
  mutable std::mutex mutex_;
  std::condition_variable is_done_;
  size_t num_left_ = 0;
  std::exception_ptr error_;
};
using TransferPtr = std::shared_ptr<Transfer>;

class Piece {
 public:
  // The first `size_bytes` from `begin_bytes` on of the transfer.
  Piece(TransferPtr transfer, size_t begin_bytes, size_t size_bytes);

  // What is to be done next.
  RingEntry Next() const;
  // True: another request must follow. Else the piece is through, and its
  // transfer knows.
  bool Take(int32_t result);
  // It cannot be carried out.
  void Fail(int error);

 private:
  bool GoOn();
  uint64_t offset_bytes() const {
    return transfer_->request().offset_bytes + begin_;
  }

  TransferPtr transfer_;
  size_t begin_;
  size_t end_;
  bool is_direct_;
  int num_tries_ = 0;  // Since bytes moved.
};

// Whole blocks around the page cache, the rest through it.
std::vector<Piece> CutIntoPieces(const TransferPtr& transfer,
                                 size_t max_piece_bytes);

PendingPtr HandleOf(TransferPtr transfer);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_IO_TRANSFER_H_

#include "src/os/io/transfer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

// Without a byte moved: something is wrong that trying does not mend.
constexpr int kMaxTries = 1000;

class TransferHandle final : public Pending {
 public:
  explicit TransferHandle(TransferPtr transfer)
      : transfer_(std::move(transfer)) {}
  ~TransferHandle() override {
    try {
      transfer_->Wait();
    } catch (const Error&) {
      // Whoever wants to know waits.
    }
  }

  void Wait() override { transfer_->Wait(); }
  bool done() const override { return transfer_->done(); }

 private:
  TransferPtr transfer_;
};

std::exception_ptr ErrnoError(int error, const Transfer& transfer,
                              uint64_t offset_bytes) {
  try {
    ThrowErrno(error, transfer.request().is_write ? "write" : "read",
               transfer.file().path);
  } catch (const Error& thrown) {
    ErrorPlace place = thrown.place();
    place.offset_bytes = offset_bytes;
    return std::make_exception_ptr(
        Error(thrown.code(), thrown.message(), std::move(place)));
  }
}

std::exception_ptr EndOfFile(const Transfer& transfer, uint64_t end_bytes) {
  const TransferRequest& request = transfer.request();
  return std::make_exception_ptr(
      Error(ErrorCode::kDataLoss, StrCat("the file ends at byte ", end_bytes),
            {.file = transfer.file().path,
             .offset_bytes = request.offset_bytes,
             .expected = StrCat(request.size_bytes, " bytes"),
             .found = StrCat(end_bytes - request.offset_bytes, " bytes")}));
}

}  // namespace

Transfer::Transfer(OpenFilePtr file, const TransferRequest& request)
    : file_(std::move(file)), request_(request) {}

void Transfer::PieceDone(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::move(error);
  if (--num_left_ > 0) return;
  // Before anybody goes on: who waited may count on the file being closed.
  file_.reset();
  is_done_.notify_all();
}

void Transfer::Wait() {
  std::unique_lock lock(mutex_);
  is_done_.wait(lock, [this] { return num_left_ == 0; });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

bool Transfer::done() const {
  const std::lock_guard lock(mutex_);
  return num_left_ == 0;
}

Piece::Piece(TransferPtr transfer, size_t begin_bytes, size_t size_bytes)
    : transfer_(std::move(transfer)),
      begin_(begin_bytes),
      end_(begin_bytes + size_bytes),
      is_direct_(transfer_->file().direct_fd.valid()) {
  const auto address =
      reinterpret_cast<uintptr_t>(transfer_->request().data + begin_);
  is_direct_ = is_direct_ &&
               (address | offset_bytes() | size_bytes) % kIoBlockBytes == 0;
}

RingEntry Piece::Next() const {
  const OpenFile& file = transfer_->file();
  return {.is_write = transfer_->request().is_write,
          .fd = (is_direct_ ? file.direct_fd : file.fd).get(),
          .offset_bytes = offset_bytes(),
          .data = transfer_->request().data + begin_,
          .size_bytes = static_cast<uint32_t>(end_ - begin_)};
}

bool Piece::Take(int32_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++num_tries_ < kMaxTries) return true;
    Fail(-result);
    return false;
  }
  if (result == -EINVAL && is_direct_) {
    is_direct_ = false;
    if (transfer_->file().on_not_direct) transfer_->file().on_not_direct();
    return true;
  }
  if (result < 0) {
    Fail(-result);
    return false;
  }
  if (result == 0) {
    if (transfer_->request().is_write) {
      Fail(ENOSPC);
    } else {
      transfer_->PieceDone(EndOfFile(*transfer_, offset_bytes()));
    }
    return false;
  }
  num_tries_ = 0;
  begin_ += static_cast<size_t>(result);
  return GoOn();
}

bool Piece::GoOn() {
  if (begin_ >= end_) {
    transfer_->PieceDone(nullptr);
    return false;
  }
  // In the middle of a block, as at the end of a file.
  if (is_direct_ && offset_bytes() % kIoBlockBytes != 0) is_direct_ = false;
  return true;
}

void Piece::Fail(int error) {
  transfer_->PieceDone(ErrnoError(error, *transfer_, offset_bytes()));
}

std::vector<Piece> CutIntoPieces(const TransferPtr& transfer,
                                 size_t max_piece_bytes) {
  const TransferRequest& request = transfer->request();
  // Up to a block's start, so that what follows can be direct.
  const size_t head = std::min<size_t>(
      request.size_bytes,
      (kIoBlockBytes - request.offset_bytes % kIoBlockBytes) % kIoBlockBytes);
  const size_t body =
      (request.size_bytes - head) / kIoBlockBytes * kIoBlockBytes;
  std::vector<Piece> pieces;
  if (head > 0) pieces.emplace_back(transfer, 0, head);
  for (size_t at = 0; at < body; at += max_piece_bytes) {
    pieces.emplace_back(transfer, head + at,
                        std::min(max_piece_bytes, body - at));
  }
  const size_t rest = request.size_bytes - head - body;
  if (rest > 0) pieces.emplace_back(transfer, head + body, rest);
  transfer->SetNumPieces(pieces.size());
  return pieces;
}

PendingPtr HandleOf(TransferPtr transfer) {
  return std::make_unique<TransferHandle>(std::move(transfer));
}

}  // namespace muonstore::os

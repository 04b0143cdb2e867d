// The one door to liburing.
#include <algorithm>
#include <bit>
#include <cerrno>

#include <liburing.h>

#include "src/os/io/ring.h"

namespace muonstore::os {
namespace {

constexpr int kNumBuffers = 64;

class Uring final : public Ring {
 public:
  ~Uring() override {
    if (is_open_) ::io_uring_queue_exit(&ring_);
  }

  // 0, or an errno value.
  int Open(int queue_depth) {
    // One more, for Wake.
    const auto entries = std::bit_ceil(static_cast<unsigned>(queue_depth) + 1U);
    const int result = ::io_uring_queue_init(entries, &ring_, 0);
    if (result < 0) return -result;
    is_open_ = true;
    // Absent before Linux 5.19.
    has_buffers_ = ::io_uring_register_buffers_sparse(&ring_, kNumBuffers) == 0;
    return HasReadAndWrite() ? TryIt() : ENOSYS;
  }

  std::string_view name() const override { return "io_uring"; }

  void Queue(const RingEntry& entry) override {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    const auto op = [&](int plain, int fixed) {
      return entry.buffer < 0 ? plain : fixed;
    };
    ::io_uring_prep_rw(
        entry.is_write ? op(IORING_OP_WRITE, IORING_OP_WRITE_FIXED)
                       : op(IORING_OP_READ, IORING_OP_READ_FIXED),
        sqe, entry.fd, entry.data, entry.size_bytes, entry.offset_bytes);
    if (entry.buffer >= 0) sqe->buf_index = static_cast<__u16>(entry.buffer);
    ::io_uring_sqe_set_data64(sqe, entry.id);
  }

  int Submit() override {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int result = ::io_uring_submit(&ring_);
      if (result < 0) return -result;
      if (result == 0) return EAGAIN;
    }
    return 0;
  }

  int Wait(std::span<RingCompletion> out) override {
    io_uring_cqe* cqe = nullptr;
    const int result = WaitForOne(&cqe);
    if (result < 0) return result == -ETIME ? -EAGAIN : result;
    int count = 0;
    unsigned head = 0;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      if (count == static_cast<int>(out.size())) break;
      out[static_cast<size_t>(count++)] = {::io_uring_cqe_get_data64(cqe),
                                           cqe->res};
    }
    ::io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
    return count;
  }

  int Wake() override {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    if (sqe != nullptr) {
      ::io_uring_prep_nop(sqe);
      ::io_uring_sqe_set_data64(sqe, kWakeId);
    }
    return Submit();
  }

  int num_buffers() const override { return has_buffers_ ? kNumBuffers : 0; }

  int RegisterBuffer(int buffer, std::span<std::byte> memory) override {
    const iovec range{memory.data(), memory.size()};
    const __u64 tag = 0;
    const int result = ::io_uring_register_buffers_update_tag(
        &ring_, static_cast<unsigned>(buffer), &range, &tag, 1);
    return result < 0 ? -result : 0;
  }

 private:
  int WaitForOne(io_uring_cqe** cqe) {
    if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {
      return ::io_uring_wait_cqe(&ring_, cqe);
    }
    // Looks up now and then, for a ring that not even Wake can reach.
    __kernel_timespec timeout{.tv_sec = 1, .tv_nsec = 0};
    return ::io_uring_wait_cqe_timeout(&ring_, cqe, &timeout);
  }

  // A sandbox may give a ring and refuse its use.
  int TryIt() {
    ::io_uring_prep_nop(::io_uring_get_sqe(&ring_));
    int result = ::io_uring_submit_and_wait(&ring_, 1);
    while (result == -EINTR) result = ::io_uring_submit_and_wait(&ring_, 1);
    io_uring_cqe* cqe = nullptr;
    if (result >= 0) result = ::io_uring_peek_cqe(&ring_, &cqe);
    if (result < 0) return -result;
    ::io_uring_cqe_seen(&ring_, cqe);
    return 0;
  }

  // Kernels before 5.6 have a ring without these.
  bool HasReadAndWrite() {
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const bool has = ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    ::io_uring_free_probe(probe);
    return has;
  }

  io_uring ring_{};
  bool is_open_ = false;
  bool has_buffers_ = false;
};

}  // namespace

std::unique_ptr<Ring> MakeUring(int queue_depth, int* error) {
  auto ring = std::make_unique<Uring>();
  *error = ring->Open(queue_depth);
  if (*error != 0) return nullptr;
  return ring;
}

}  // namespace muonstore::os

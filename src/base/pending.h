// Handles on work that is done already.
#ifndef MUONSTORE_SRC_BASE_PENDING_H_
#define MUONSTORE_SRC_BASE_PENDING_H_

#include <exception>
#include <memory>
#include <utility>

#include "muonstore/pending.h"

namespace muonstore {

class DonePending final : public Pending {
 public:
  DonePending() = default;
  // Wait() throws it.
  explicit DonePending(std::exception_ptr error) { error_ = std::move(error); }

  void Wait() override {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  bool done() const override { return true; }

 private:
  std::exception_ptr error_;
};

// Does the work at once; what it throws comes out of Wait().
template <typename Work>
PendingPtr DoNow(const Work& work) {
  try {
    work();
  } catch (...) {
    return std::make_unique<DonePending>(std::current_exception());
  }
  return std::make_unique<DonePending>();
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_PENDING_H_

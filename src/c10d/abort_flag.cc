#include "src/c10d/abort_flag.h"

#include <exception>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace muonstore {
namespace {

std::string TextOf(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

AbortFlag::AbortFlag(c10::intrusive_ptr<c10d::Store> store, std::string key)
    : store_(std::move(store)), key_(std::move(key)) {}

void AbortFlag::Raise(const std::string& text) {
  std::string first = text;
  if (store_ != nullptr) {
    try {
      first = TextOf(store_->compareSet(
          key_, {}, std::vector<uint8_t>(text.begin(), text.end())));
    } catch (const std::exception&) {
      // The rank that serves the store is gone.
    }
  }
  Learn(first);
}

std::optional<std::string> AbortFlag::Known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

std::optional<std::string> AbortFlag::Look() {
  if (const auto known = Known()) {
    return known;
  }
  try {
    if (store_ != nullptr && store_->check({key_})) {
      Learn(TextOf(store_->get(key_)));
    }
  } catch (const std::exception&) {
    // As above.
  }
  return Known();
}

void AbortFlag::Learn(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!known_) {
    known_ = text;
  }
}

}  // namespace muonstore

#include "python/src/group_communicator.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/comm/collective_engine.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using comm::SharedBytes;

// Exceptions of Python's must not leave the GIL.
template <typename Function>
auto WithGil(const Function& function) {
  const nb::gil_scoped_acquire gil;
  try {
    return function();
  } catch (const nb::python_error& error) {
    throw std::runtime_error(error.what());
  }
}

// The same memory as a tensor of bytes, which keeps it.
nb::object TensorOf(const SharedBytes& bytes) {
  using Keep = std::shared_ptr<std::byte[]>;
  const nb::capsule owner(new Keep(bytes.data), [](void* keep) noexcept {
    delete static_cast<Keep*>(keep);
  });
  return nb::cast(
      nb::ndarray<nb::pytorch, uint8_t>(bytes.data.get(), {bytes.size}, owner));
}

class GroupEngine : public comm::CollectiveEngine {
 public:
  GroupEngine(nb::object calls, int32_t rank, int32_t size)
      : CollectiveEngine(rank, size), calls_(std::move(calls)) {}
  ~GroupEngine() override {
    const nb::gil_scoped_acquire gil;
    calls_.reset();
  }
  GroupEngine(const GroupEngine&) = delete;
  GroupEngine& operator=(const GroupEngine&) = delete;

  std::string_view name() const override { return "process group"; }

  void Abort(std::string_view reason) override {
    const std::string text = comm::AbortText(rank(), reason);
    const std::string first = WithGil(
        [&] { return nb::cast<std::string>(calls_.attr("abort")(text)); });
    Learn(first);
  }

 private:
  void AllGather(const SharedBytes& own, const SharedBytes& all) override {
    WithGil([&] { calls_.attr("all_gather")(TensorOf(own), TensorOf(all)); });
  }

  void AllToAll(const AllToAllBytes& bytes) override {
    WithGil([&] {
      calls_.attr("all_to_all")(TensorOf(bytes.out), bytes.sent,
                                TensorOf(bytes.in), bytes.received);
    });
  }

  void BroadcastFrom(int32_t root, const SharedBytes& data) override {
    WithGil([&] { calls_.attr("broadcast")(TensorOf(data), root); });
  }

  std::unique_ptr<Engine> Split(int /*number*/) override {
    return WithGil([&]() -> std::unique_ptr<Engine> {
      return std::make_unique<GroupEngine>(calls_.attr("split")(), rank(),
                                           size());
    });
  }

  std::optional<std::string> KnownAbort() const override {
    const std::lock_guard lock(mutex_);
    return known_;
  }

  std::optional<std::string> LookForAbort() override {
    const auto told = WithGil([&] {
      return nb::cast<std::optional<std::string>>(calls_.attr("look")());
    });
    if (told) Learn(*told);
    return KnownAbort();
  }

  std::string backend_name() const override {
    return WithGil(
        [&] { return nb::cast<std::string>(calls_.attr("backend")); });
  }

  std::string TextOf(const std::exception& error) const override {
    return error.what();
  }

  void Learn(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!known_) known_ = text;
  }

  nb::object calls_;
  mutable std::mutex mutex_;
  std::optional<std::string> known_;
};

}  // namespace

std::unique_ptr<Communicator> MakeGroupCommunicator(nb::object calls) {
  const auto rank = nb::cast<int32_t>(calls.attr("rank"));
  const auto size = nb::cast<int32_t>(calls.attr("size"));
  return comm::MakeOrderedCommunicator(
      std::make_unique<GroupEngine>(std::move(calls), rank, size));
}

}  // namespace muonstore::python

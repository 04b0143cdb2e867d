// The host's processor as a device.
#include "muonstore/device.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

class HostDevice : public Device {
 public:
  HostDevice(const NewtonSchulzOptions& options, ThreadPool& pool)
      : orthogonalizer_(options, pool) {}

  std::string_view name() const override { return "host"; }
  bool works_in_host_memory() const override { return true; }
  void OrthogonalizeInPlace(std::span<const OrthogonalizeJob> jobs) override {
    orthogonalizer_.Run(jobs);
  }

  std::unique_ptr<DeviceBuffer> Allocate(uint64_t) override { Refuse(); }
  PendingPtr CopyIn(DeviceBuffer&, std::span<const std::byte>) override {
    Refuse();
  }
  PendingPtr Orthogonalize(DeviceBuffer&, const DeviceMatrices&) override {
    Refuse();
  }
  PendingPtr CopyOut(std::span<std::byte>, const DeviceBuffer&) override {
    Refuse();
  }
  void Drain() override {}

 private:
  [[noreturn]] static void Refuse() {
    throw Error(ErrorCode::kInternal,
                "the host device works in host memory and has no buffers");
  }

  Orthogonalizer orthogonalizer_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice(const NewtonSchulzOptions& options,
                                       ThreadPool& pool) {
  return std::make_unique<HostDevice>(options, pool);
}

}  // namespace muonstore

// The fake's CUDA runtime.
#include <cstdlib>
#include <cstring>

#include "tests/cuda/fake_machine.h"

using muonstore::fake_cuda::kFailed;
using muonstore::fake_cuda::Machine;

namespace {

constexpr int kOutOfMemory = 2;
constexpr int kInvalid = 1;
constexpr int kNoDevice = 100;
constexpr int kNotReady = 600;
constexpr int kHostToDevice = 1;
constexpr int kDeviceToHost = 2;

Machine& The() { return Machine::Instance(); }

// A call that gives something back: it does so whatever it answers.
int Released(const char* name, bool released) {
  if (!released) The().Violation(std::string(name) + " of nothing");
  return The().Fails(name) ? kFailed : 0;
}

void CopyNow(void* to, const void* from, size_t size, int kind) {
  Machine& machine = The();
  const bool to_device = kind != kDeviceToHost;
  const bool from_device = kind != kHostToDevice;
  if (to_device && !machine.RequireDevice(to, size, "a copy")) return;
  if (from_device && !machine.RequireDevice(from, size, "a copy")) return;
  const auto bytes = static_cast<int64_t>(size);
  if (kind == kHostToDevice) machine.counts().host_to_device_bytes += bytes;
  if (kind == kDeviceToHost) machine.counts().device_to_host_bytes += bytes;
  std::memmove(to, from, size);
}

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  if (The().Fails("cudaGetDeviceCount")) return kFailed;
  *count = The().options().num_devices;
  return *count > 0 ? 0 : kNoDevice;
}

int cudaSetDevice(int device) {
  if (The().Fails("cudaSetDevice")) return kFailed;
  return device < The().options().num_devices ? 0 : kInvalid;
}

int cudaMalloc(void** address, size_t size) {
  if (The().Fails("cudaMalloc")) return kOutOfMemory;
  *address = The().Allocate(size);
  return 0;
}

int cudaFree(void* address) {
  return Released("cudaFree", address == nullptr || The().Free(address));
}

int cudaHostAlloc(void** address, size_t size, unsigned /*flags*/) {
  if (The().Fails("cudaHostAlloc")) return kOutOfMemory;
  *address = std::calloc(1, size);
  The().AddPinned(*address, size);
  return 0;
}

int cudaFreeHost(void* address) {
  const int status = Released("cudaFreeHost", The().RemovePinned(address));
  std::free(address);
  return status;
}

int cudaHostRegister(void* address, size_t size, unsigned /*flags*/) {
  if (The().Fails("cudaHostRegister")) return kFailed;
  return The().AddPinned(address, size) ? 0 : 712;
}

int cudaHostUnregister(void* address) {
  return Released("cudaHostUnregister", The().RemovePinned(address));
}

int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind,
                    void* stream) {
  Machine& machine = The();
  if (machine.Fails("cudaMemcpyAsync")) return kFailed;
  const void* host = kind == kHostToDevice   ? from
                     : kind == kDeviceToHost ? to
                                             : nullptr;
  machine.Put(stream, {.run = [=] { CopyNow(to, from, size, kind); }});
  if (host != nullptr && !machine.IsPinned(host, size)) {
    // Ordinary memory is staged: the call returns when that is done.
    ++machine.counts().pageable_copies;
    return machine.SynchronizeStream(stream);
  }
  return 0;
}

int cudaStreamCreateWithFlags(void** stream, unsigned /*flags*/) {
  if (The().Fails("cudaStreamCreateWithFlags")) return kFailed;
  *stream = The().AddStream();
  return 0;
}

int cudaStreamDestroy(void* stream) {
  return Released("cudaStreamDestroy", The().RemoveStream(stream));
}

int cudaStreamSynchronize(void* stream) {
  if (The().Fails("cudaStreamSynchronize")) return kFailed;
  return The().SynchronizeStream(stream);
}

int cudaStreamWaitEvent(void* stream, void* event, unsigned /*flags*/) {
  if (The().Fails("cudaStreamWaitEvent")) return kFailed;
  The().WaitFor(stream, event);
  return 0;
}

int cudaEventCreateWithFlags(void** event, unsigned /*flags*/) {
  if (The().Fails("cudaEventCreateWithFlags")) return kFailed;
  *event = The().AddEvent();
  return 0;
}

int cudaEventDestroy(void* event) {
  return Released("cudaEventDestroy", The().RemoveEvent(event));
}

int cudaEventRecord(void* event, void* stream) {
  if (The().Fails("cudaEventRecord")) return kFailed;
  The().Record(event, stream);
  return 0;
}

int cudaEventSynchronize(void* event) {
  if (The().Fails("cudaEventSynchronize")) return kFailed;
  return The().SynchronizeEvent(event);
}

int cudaEventQuery(void* event) {
  if (The().Fails("cudaEventQuery")) return kFailed;
  return The().QueryEvent(event) ? 0 : kNotReady;
}

int cudaGetLastError() { return 0; }

const char* cudaGetErrorString(int /*status*/) { return "a fake reason"; }

}  // extern "C"

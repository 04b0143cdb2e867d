// The machine behind the fake's functions: memory, streams, events.
#ifndef MUONSTORE_TESTS_CUDA_FAKE_MACHINE_H_
#define MUONSTORE_TESTS_CUDA_FAKE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/fake_cuda.h"

namespace muonstore::fake_cuda {

inline constexpr int kFailed = 719;

// Set when the work before it has run.
using Mark = std::shared_ptr<bool>;

struct Work {
  std::function<void()> run;
  Mark waits_for;  // Null: nothing.
};

struct Stream {
  std::deque<Work> waiting;
};

struct Event {
  Mark last;
};

class Machine {
 public:
  static Machine& Instance();

  void Reset(const Options& options);
  Counts Look() const;

  // Counts a call; true where it is to fail.
  bool Fails(const char* name);
  const Options& options() const { return options_; }
  Counts& counts() { return counts_; }
  void Violation(const std::string& what);

  void* Allocate(size_t size);
  bool Free(void* address);
  // Whether [address, address + size) is device memory; says so where not.
  bool RequireDevice(const void* address, size_t size, const char* who);

  // Page-locked memory of the host.
  bool AddPinned(void* address, size_t size);
  bool RemovePinned(void* address);
  bool IsPinned(const void* address, size_t size) const;

  // Objects of which only the number matters, and whether they live.
  void* AddObject(const char* kind);
  bool RemoveObject(void* object);

  void* AddStream();
  bool RemoveStream(void* handle);
  void* AddEvent();
  bool RemoveEvent(void* handle);
  void Put(void* stream, Work work);
  void Record(void* event, void* stream);
  void WaitFor(void* stream, void* event);
  // Run what it takes; the status of all work so far.
  int SynchronizeStream(void* stream);
  int SynchronizeEvent(void* event);
  // Runs one piece of work; whether the event has been reached.
  bool QueryEvent(void* event);

 private:
  Stream* FindStream(void* handle);
  Event* FindEvent(void* handle);
  bool RunOne();
  int status() const { return failed_work_ ? kFailed : 0; }

  Options options_;
  Counts counts_;
  std::mt19937_64 random_;
  bool failed_work_ = false;
  std::map<const std::byte*, std::vector<std::byte>> memory_;
  std::map<const std::byte*, size_t> pinned_;
  std::map<void*, std::unique_ptr<Stream>> streams_;  // Null: the default one.
  std::map<void*, std::unique_ptr<Event>> events_;
  std::map<void*, std::unique_ptr<std::string>> objects_;
};

}  // namespace muonstore::fake_cuda

#endif  // MUONSTORE_TESTS_CUDA_FAKE_MACHINE_H_

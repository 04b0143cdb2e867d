#include "tests/cuda/fake_machine.h"

#include <algorithm>
#include <utility>

namespace muonstore::fake_cuda {

Machine& Machine::Instance() {
  static Machine machine;
  return machine;
}

void Machine::Reset(const Options& options) {
  *this = Machine();
  options_ = options;
  random_.seed(options.seed);
  streams_.emplace(nullptr, std::make_unique<Stream>());
}

Counts Machine::Look() const {
  Counts counts = counts_;
  counts.live_objects = static_cast<int64_t>(memory_.size() + pinned_.size() +
                                             (streams_.size() - 1) +
                                             events_.size() + objects_.size());
  for (const auto& [handle, stream] : streams_) {
    counts.num_waiting += static_cast<int64_t>(stream->waiting.size());
  }
  return counts;
}

bool Machine::Fails(const char* name) {
  if (++counts_.calls != options_.fail_call) return false;
  counts_.failed_call = name;
  return true;
}

void Machine::Violation(const std::string& what) {
  counts_.violations.push_back(what);
}

void* Machine::Allocate(size_t size) {
  // All bits set: NaN as a float.
  std::vector<std::byte> bytes(std::max<size_t>(1, size), std::byte{0xFF});
  std::byte* address = bytes.data();
  memory_.emplace(address, std::move(bytes));
  counts_.live_bytes += static_cast<int64_t>(size);
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.live_bytes);
  return address;
}

bool Machine::Free(void* address) {
  const auto found = memory_.find(static_cast<const std::byte*>(address));
  if (found == memory_.end()) return false;
  counts_.live_bytes -= static_cast<int64_t>(found->second.size());
  memory_.erase(found);
  return true;
}

bool Machine::RequireDevice(const void* address, size_t size, const char* who) {
  const auto* begin = static_cast<const std::byte*>(address);
  const auto after = memory_.upper_bound(begin);
  if (after != memory_.begin()) {
    const auto& [first, bytes] = *std::prev(after);
    if (begin + size <= first + bytes.size()) return true;
  }
  Violation(std::string(who) + " uses what is no device memory");
  return false;
}

bool Machine::AddPinned(void* address, size_t size) {
  return pinned_.emplace(static_cast<const std::byte*>(address), size).second;
}

bool Machine::RemovePinned(void* address) {
  return pinned_.erase(static_cast<const std::byte*>(address)) == 1;
}

bool Machine::IsPinned(const void* address, size_t size) const {
  const auto* begin = static_cast<const std::byte*>(address);
  const auto after = pinned_.upper_bound(begin);
  if (after == pinned_.begin()) return false;
  const auto& [first, bytes] = *std::prev(after);
  return begin + size <= first + bytes;
}

void* Machine::AddObject(const char* kind) {
  auto object = std::make_unique<std::string>(kind);
  void* handle = object.get();
  objects_.emplace(handle, std::move(object));
  return handle;
}

bool Machine::RemoveObject(void* object) { return objects_.erase(object) == 1; }

void* Machine::AddStream() {
  auto stream = std::make_unique<Stream>();
  void* handle = stream.get();
  streams_.emplace(handle, std::move(stream));
  return handle;
}

bool Machine::RemoveStream(void* handle) {
  const Stream* stream = FindStream(handle);
  if (stream == nullptr) return false;
  if (!stream->waiting.empty()) Violation("a stream goes with work to do");
  return streams_.erase(handle) == 1;
}

void* Machine::AddEvent() {
  auto event = std::make_unique<Event>();
  void* handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Machine::RemoveEvent(void* handle) { return events_.erase(handle) == 1; }

Stream* Machine::FindStream(void* handle) {
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second.get();
  Violation("use of a stream that is not there");
  return nullptr;
}

Event* Machine::FindEvent(void* handle) {
  const auto found = events_.find(handle);
  if (found != events_.end()) return found->second.get();
  Violation("use of an event that is not there");
  return nullptr;
}

void Machine::Put(void* handle, Work work) {
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return;
  stream->waiting.push_back(std::move(work));
  int64_t busy = 0;
  for (const auto& [other, each] : streams_) {
    busy += each->waiting.empty() ? 0 : 1;
  }
  counts_.peak_busy_streams = std::max(counts_.peak_busy_streams, busy);
}

void Machine::Record(void* handle, void* stream) {
  Event* event = FindEvent(handle);
  if (event == nullptr) return;
  auto mark = std::make_shared<bool>(false);
  event->last = mark;
  Put(stream, {.run = [mark] { *mark = true; }});
}

void Machine::WaitFor(void* stream, void* handle) {
  const Event* event = FindEvent(handle);
  // As in CUDA: what the event stands for now, not later.
  if (event != nullptr && event->last != nullptr) {
    Put(stream, {.run = [] {}, .waits_for = event->last});
  }
}

bool Machine::RunOne() {
  std::vector<Stream*> ready;
  for (const auto& [handle, stream] : streams_) {
    if (stream->waiting.empty()) continue;
    const Mark& mark = stream->waiting.front().waits_for;
    if (mark == nullptr || *mark) ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  std::sort(ready.begin(), ready.end());
  Stream& stream = *ready[random_() % ready.size()];
  const Work work = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (++counts_.work == options_.fail_work) failed_work_ = true;
  work.run();
  return true;
}

int Machine::SynchronizeStream(void* handle) {
  const Stream* stream = FindStream(handle);
  while (stream != nullptr && !stream->waiting.empty()) {
    if (!RunOne()) {
      Violation("streams wait for each other");
      return kFailed;
    }
  }
  return status();
}

int Machine::SynchronizeEvent(void* handle) {
  const Event* event = FindEvent(handle);
  while (event != nullptr && event->last != nullptr && !*event->last) {
    if (!RunOne()) {
      Violation("an event is never reached");
      return kFailed;
    }
  }
  return status();
}

bool Machine::QueryEvent(void* handle) {
  RunOne();
  const Event* event = FindEvent(handle);
  return event == nullptr || event->last == nullptr || *event->last;
}

void Reset(const Options& options) { Machine::Instance().Reset(options); }
Counts Look() { return Machine::Instance().Look(); }

}  // namespace muonstore::fake_cuda

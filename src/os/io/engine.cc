#include "src/os/io/engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "src/base/pending.h"

namespace muonstore::os {
namespace {

constexpr size_t kMaxCompletions = 64;
// How long the kernel may lack memory for requests before work is given up.
constexpr int kMaxSubmits = 5000;
constexpr auto kSubmitPause = std::chrono::milliseconds(1);

bool IsPassing(int error) {
  return error == EINTR || error == EAGAIN || error == EBUSY;
}

}  // namespace

Engine::Engine(std::unique_ptr<Ring> ring, const IoOptions& options)
    : ring_(std::move(ring)),
      options_(options),
      under_way_(static_cast<size_t>(options.queue_depth)),
      buffers_(static_cast<size_t>(ring_->num_buffers())) {
  for (size_t place = under_way_.size(); place-- > 0;) {
    free_places_.push_back(place);
  }
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  {
    std::unique_lock lock(mutex_);
    is_idle_.wait(lock, [this] { return is_idle(); });
    // A ring that has failed for good wakes nobody; see Run().
    for (int i = 0; i < kMaxSubmits && IsPassing(ring_->Wake()); ++i) {
      std::this_thread::sleep_for(kSubmitPause);
    }
  }
  thread_.join();
}

PendingPtr Engine::Start(const OpenFilePtr& file,
                         const TransferRequest& request) {
  if (request.size_bytes == 0) return std::make_unique<DonePending>();
  auto transfer = std::make_shared<Transfer>(file, request);
  std::vector<Piece> pieces = CutIntoPieces(transfer, options_.piece_bytes);
  {
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces) waiting_.push_back(std::move(piece));
    Fill();
  }
  return HandleOf(std::move(transfer));
}

void Engine::Fill() {
  while (broken_ == 0 && !waiting_.empty() && !free_places_.empty()) {
    const size_t place = free_places_.back();
    free_places_.pop_back();
    under_way_[place] = std::move(waiting_.front());
    waiting_.pop_front();
    RingEntry entry = under_way_[place]->Next();
    entry.id = place;
    entry.buffer = BufferOf(entry);
    ring_->Queue(entry);
  }
  SubmitAll();
}

void Engine::SubmitAll() {
  int error = broken_;
  for (int num_tries = 0; error == 0;) {
    error = ring_->Submit();
    if (error == 0) return;
    if (!IsPassing(error) || ++num_tries == kMaxSubmits) break;
    if (error != EINTR) std::this_thread::sleep_for(kSubmitPause);
    error = 0;
  }
  GiveUp(error == EAGAIN || error == EBUSY ? ENOMEM : error);
}

void Engine::GiveUp(int error) {
  broken_ = error;
  for (std::optional<Piece>& piece : under_way_) {
    if (piece) piece->Fail(error);
    piece.reset();
  }
  for (Piece& piece : waiting_) piece.Fail(error);
  waiting_.clear();
  is_idle_.notify_all();
}

bool Engine::is_idle() const {
  return broken_ != 0 ||
         (waiting_.empty() && free_places_.size() == under_way_.size());
}

void Engine::Take(const RingCompletion& completion) {
  std::optional<Piece>& piece = under_way_[completion.id];
  if (!piece) return;  // Given up.
  if (piece->Take(completion.result)) {
    // Before what waits: its place in the queue is kept.
    waiting_.push_front(std::move(*piece));
  }
  piece.reset();
  free_places_.push_back(completion.id);
}

void Engine::Run() {
  std::array<RingCompletion, kMaxCompletions> completions{};
  for (;;) {
    const int count = ring_->Wait(completions);
    const std::lock_guard lock(mutex_);
    if (count < 0 && !IsPassing(-count)) GiveUp(-count);
    if (broken_ != 0) return;
    const auto taken =
        std::span(completions).first(static_cast<size_t>(std::max(count, 0)));
    bool stops = false;
    for (const RingCompletion& completion : taken) {
      if (completion.id == Ring::kWakeId) {
        stops = true;
      } else {
        Take(completion);
      }
    }
    if (stops) return;
    Fill();
    if (is_idle()) is_idle_.notify_all();
  }
}

}  // namespace muonstore::os

// The stages of a step's units, one after the other, read ahead and written
// behind.
//
// What: pipelined, the next unit is read and the last one written while one is
//   worked on; partitioned, each read and write is waited for. Units whose
//   state is all in memory take no buffer.
// Ownership: refers to store, pool and units. Owns the stages that it has not
//   handed out.
// Threads: one.
// Failures: what stages throw; Error(kInternal) for Next() without room.

#ifndef MUONSTORE_SRC_EXECUTOR_STAGE_STREAM_H_
#define MUONSTORE_SRC_EXECUTOR_STAGE_STREAM_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "muonstore/executor.h"
#include "src/executor/buffer_pool.h"
#include "src/executor/stage.h"

namespace muonstore {

// What a step's streams moved.
struct SwapCounts {
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  double wait_s = 0;  // For reads and writes.
};

// What stays the same over the streams of a step.
struct StageContext {
  StateStore::Impl& store;
  BufferPool& pool;
  SwapMode mode = SwapMode::kPipelined;
  SwapCounts& counts;
};

class StageStream {
 public:
  // `units` in the order of Next().
  StageStream(const StageContext& context, std::span<const StagedKind> kinds,
              std::vector<const Unit*> units);
  ~StageStream();
  StageStream(const StageStream&) = delete;
  StageStream& operator=(const StageStream&) = delete;

  // A stage in the hands of the caller, with its buffer.
  class Held {
   public:
    Held(BufferPool& pool, int32_t buffer, std::unique_ptr<Stage> stage);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    Stage& stage() { return *stage_; }
    bool has_buffer() const { return buffer_ >= 0; }

   private:
    BufferPool& pool_;
    int32_t buffer_;  // -1: it needs none.
    std::unique_ptr<Stage> stage_;
  };

  // Whether Next() can be called: false until a stage that was handed out is
  // given back by Finish().
  bool HasRoom();
  // The next unit, loaded.
  std::unique_ptr<Held> Next();
  // Writes what the stage changed.
  void Finish(std::unique_ptr<Held> held);
  // Waits for every write.
  void Drain();

 private:
  bool NeedsBuffer(const Unit& unit) const;
  void StartNext();
  void FinishOldest();

  StageContext context_;
  std::span<const StagedKind> kinds_;
  std::vector<const Unit*> units_;
  size_t next_ = 0;  // To be loaded.
  std::deque<std::unique_ptr<Held>> loading_;
  std::deque<std::unique_ptr<Held>> storing_;
};

// Calls body(stage, unit) for every unit, and drains.
void ForEachStage(const StageContext& context,
                  std::span<const StagedKind> kinds,
                  std::span<const Unit> units,
                  const std::function<void(Stage&, const Unit&)>& body);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_STAGE_STREAM_H_

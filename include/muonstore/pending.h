// A handle on asynchronous work.
//
// What: reads, writes and exchanges return one. `Wait` blocks until the work is
//   done and throws what went wrong with it.
// Ownership: the caller owns the handle and keeps the memory that the work
//   reads or writes alive and untouched until `Wait` has returned or thrown.
//   Destroying a handle waits, and swallows the error: call `Wait`.
// Threads: one thread at a time.
// Failures: `Wait` throws Error, again on each call.

#ifndef MUONSTORE_PENDING_H_
#define MUONSTORE_PENDING_H_

#include <memory>

namespace muonstore {

class Pending {
 public:
  virtual ~Pending() = default;
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  virtual void Wait() = 0;
  // Without blocking: would Wait return at once?
  virtual bool done() const = 0;
};

using PendingPtr = std::unique_ptr<Pending>;

}  // namespace muonstore

#endif  // MUONSTORE_PENDING_H_

// Long work that Python can follow and stop.
//
// What: `RunInterruptible` does the work on a thread of its own, without the
//   GIL. The calling thread looks twenty times a second whether a signal came
//   (Ctrl-C) and tells the Python callback how far the work is. What a signal
//   or the callback raises stops the work at its next report of progress; it
//   cleans up, then the exception goes on.
// Ownership: nothing is kept.
// Threads: called with the GIL; the callback runs on the calling thread.
// Failures: the work's own, unless Python raised first.

#ifndef MUONSTORE_PYTHON_SRC_INTERRUPTIBLE_H_
#define MUONSTORE_PYTHON_SRC_INTERRUPTIBLE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <string>

namespace muonstore::python {

// For the work: tells progress, and throws where it is to stop.
struct Watch {
  std::function<void(const std::string& what, uint64_t done, uint64_t total)>
      progress;
  std::function<void()> check;
  // The last moment to stop: waits until the callback knows how far the work
  // is. Nothing stops it afterwards, and the callback is called no more.
  std::function<void()> last_call;

  // For work of one kind.
  std::function<void(uint64_t done, uint64_t total)> Progress(
      std::string what) const;
};

// `callback` is None or callable(what: str, done: int, total: int).
void RunInterruptible(const nanobind::object& callback,
                      const std::function<void(const Watch&)>& work);

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_INTERRUPTIBLE_H_

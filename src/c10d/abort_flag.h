// A word that one rank of a process group leaves for all: it has given up.
//
// What: a key in the group's store, which the ranks look at while they wait.
// Ownership: shares the store, which may be missing: then the word stays here.
// Threads: any.
// Failures: where the store cannot be reached, the word stays here.
#ifndef MUONSTORE_SRC_C10D_ABORT_FLAG_H_
#define MUONSTORE_SRC_C10D_ABORT_FLAG_H_

#include <mutex>
#include <optional>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace muonstore {

class AbortFlag {
 public:
  AbortFlag(c10::intrusive_ptr<c10d::Store> store, std::string key);

  // The first one on any rank counts.
  void Raise(const std::string& text);
  // What was raised on this rank, or seen. Asks nobody.
  std::optional<std::string> Known() const;
  // Asks the store, too.
  std::optional<std::string> Look();

 private:
  void Learn(const std::string& text);

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  mutable std::mutex mutex_;
  std::optional<std::string> known_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_C10D_ABORT_FLAG_H_

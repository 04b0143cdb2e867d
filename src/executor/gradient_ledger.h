// Which gradient elements have come: none twice, none missing.
//
// What: counts micro-batches by parameter. The next one of a parameter begins
//   when every element that this rank owns of it has come once.
// Ownership: refers to the store.
// Threads: one at a time.
// Failures: Error(kInvalidArgument) names parameter and elements; nothing is
//   noted then.

#ifndef MUONSTORE_SRC_EXECUTOR_GRADIENT_LEDGER_H_
#define MUONSTORE_SRC_EXECUTOR_GRADIENT_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/fragment.h"
#include "src/store/store_impl.h"

namespace muonstore {

class GradientLedger {
 public:
  explicit GradientLedger(const StateStore::Impl& store);

  // What of elements `range` this rank owns, and whether these are the first
  // gradients for them since Clear.
  struct Admitted {
    std::vector<Fragment> fragments;
    bool first = true;
  };
  Admitted Admit(int32_t parameter, ElementRange range);

  // The number of complete micro-batches of every parameter that has elements
  // here; nullopt where none has. Throws where one is incomplete or behind.
  std::optional<int64_t> RequireComplete() const;

  void Clear();

 private:
  struct Entry {
    int64_t owned_elements = 0;
    int64_t micro_batches = 0;
    // Of the micro-batch under way: begin -> end, and their sum.
    std::map<int64_t, int64_t> received;
    int64_t num_received = 0;
  };

  void RequireNew(int32_t parameter, const Entry& entry,
                  ElementRange range) const;
  [[noreturn]] void ThrowIncomplete(size_t parameter,
                                    int64_t micro_batches) const;

  const StateStore::Impl& store_;
  std::vector<Entry> entries_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_GRADIENT_LEDGER_H_

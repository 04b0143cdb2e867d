#include "src/executor/gradient_ledger.h"

#include <algorithm>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

ElementRange RunOf(const Fragment& fragment, int64_t i) {
  const int64_t begin = fragment.tensor_offset + i * fragment.stride;
  return {begin, begin + fragment.length};
}

}  // namespace

GradientLedger::GradientLedger(const StateStore::Impl& store)
    : store_(store), entries_(store.parameters.size()) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (const Fragment& fragment :
         store.local_fragments(static_cast<int32_t>(i))) {
      entries_[i].owned_elements += fragment.num_elements();
    }
  }
}

void GradientLedger::RequireNew(int32_t parameter, const Entry& entry,
                                ElementRange range) const {
  // The first received range that ends behind the beginning of this one.
  auto at = entry.received.upper_bound(range.begin);
  if (at != entry.received.begin() && std::prev(at)->second > range.begin) {
    --at;
  }
  if (at != entry.received.end() && at->first < range.end) {
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("gradient elements come twice in micro-batch ",
               entry.micro_batches + 1, ": elements ",
               std::max(at->first, range.begin), " to ",
               std::min(at->second, range.end) - 1,
               " came before the rest of the parameter"),
        {.tensor = store_.parameters[static_cast<size_t>(parameter)].name});
  }
}

GradientLedger::Admitted GradientLedger::Admit(int32_t parameter,
                                               ElementRange range) {
  Entry& entry = entries_[static_cast<size_t>(parameter)];
  Admitted admitted{
      .fragments = Restrict(store_.local_fragments(parameter), range),
      .first = entry.micro_batches == 0};
  for (const Fragment& fragment : admitted.fragments) {
    for (int64_t i = 0; i < fragment.count; ++i) {
      RequireNew(parameter, entry, RunOf(fragment, i));
    }
  }
  for (const Fragment& fragment : admitted.fragments) {
    for (int64_t i = 0; i < fragment.count; ++i) {
      const ElementRange run = RunOf(fragment, i);
      entry.received.emplace(run.begin, run.end);
      entry.num_received += run.size();
    }
  }
  if (entry.num_received == entry.owned_elements) {
    entry.received.clear();
    entry.num_received = 0;
    ++entry.micro_batches;
  }
  return admitted;
}

void GradientLedger::ThrowIncomplete(size_t parameter,
                                     int64_t micro_batches) const {
  const Entry& entry = entries_[parameter];
  throw Error(
      ErrorCode::kInvalidArgument,
      entry.num_received > 0
          ? StrCat("the gradient of micro-batch ", entry.micro_batches + 1,
                   " is not complete: ", entry.num_received, " of ",
                   entry.owned_elements, " elements of this rank have come")
          : "fewer gradients came than for other parameters; Accumulate each "
            "micro-batch, or AccumulateZero where there is none",
      {.tensor = store_.parameters[parameter].name,
       .expected =
           StrCat(std::max<int64_t>(1, micro_batches), " micro-batches"),
       .found = StrCat(entry.micro_batches)});
}

std::optional<int64_t> GradientLedger::RequireComplete() const {
  std::optional<int64_t> micro_batches;
  for (const Entry& entry : entries_) {
    if (entry.owned_elements == 0) continue;
    micro_batches = std::max(micro_batches.value_or(0), entry.micro_batches);
  }
  if (!micro_batches.has_value()) return std::nullopt;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.owned_elements > 0 &&
        (entry.num_received > 0 || entry.micro_batches == 0 ||
         entry.micro_batches != *micro_batches)) {
      ThrowIncomplete(i, *micro_batches);
    }
  }
  return micro_batches;
}

void GradientLedger::Clear() {
  for (Entry& entry : entries_) {
    entry.received.clear();
    entry.num_received = 0;
    entry.micro_batches = 0;
  }
}

}  // namespace muonstore

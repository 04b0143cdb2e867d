// What a StateStore is made of, for the store's own files and the executor,
// which writes segments without leases between two decisions of all ranks.
//
// Threads: as StateStore says; segments are the executor's alone in a step.

#ifndef MUONSTORE_SRC_STORE_STORE_IMPL_H_
#define MUONSTORE_SRC_STORE_STORE_IMPL_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/fragment.h"
#include "muonstore/store.h"
#include "src/store/lease_table.h"
#include "src/store/segment_plan.h"
#include "src/store/segments.h"

namespace muonstore {

class StateStore::Impl {
 public:
  Impl(std::vector<ParameterSpec> parameters, Partitioning partitioning,
       StoreOptions options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Throws Error(kUnavailable) for a store that is poisoned or closed.
  void RequireUsable() const;
  void Poison(std::string_view reason);
  bool poisoned() const;
  void Close();

  int32_t Find(std::string_view name) const;
  // `kind` by its canonical name; throws where the parameter does not have it.
  std::string_view RequireKind(int32_t parameter, const StateKind& kind) const;

  int32_t rank_of(const Fragment& fragment) const {
    return fragment.segment / num_flat_groups_;
  }
  int32_t flat_group_of(const Fragment& fragment) const {
    return fragment.segment % num_flat_groups_;
  }
  // Of this rank, ascending by element.
  std::span<const Fragment> local_fragments(int32_t parameter) const {
    return local_fragments_[static_cast<size_t>(parameter)];
  }
  DType dtype(int32_t parameter, std::string_view kind) const;
  // Of every element of a flat group that has the kind.
  DType segment_dtype(std::string_view kind, int32_t flat_group) const {
    return dtype(partitioning.groups()[static_cast<size_t>(flat_group)]
                     .parameters.front(),
                 kind);
  }
  TensorKey key(int32_t parameter, std::string_view kind) const;

  std::vector<ParameterSpec> parameters;
  Partitioning partitioning;
  StoreOptions options;
  std::shared_ptr<Communicator> communicator;
  StoreRecord record;
  std::optional<Segments> segments;
  LeaseTable leases;
  // Held while a lease commits and while a snapshot is taken: a snapshot never
  // sees half of a commit.
  std::mutex commit_mutex;
  // Collective, of any but the first call nothing: one more slot for segments
  // that a snapshot pins, as far as memory and StoreOptions allow.
  void MakeSpares();
  // An executor steps this store: there is one at a time.
  bool has_executor = false;

 private:
  void RequireFits() const;
  // Of everything that ranks must have alike.
  int64_t digest() const;
  std::vector<ArenaPlan> PlanOwnArenas() const;
  void Allocate();
  void Release();

  int32_t num_flat_groups_ = 1;
  std::map<std::string_view, int32_t> index_;
  std::vector<std::vector<Fragment>> local_fragments_;
  bool has_spares_ = false;
  mutable std::mutex state_mutex_;
  std::string unusable_;  // Why; empty: usable.
  bool poisoned_ = false;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_STORE_IMPL_H_

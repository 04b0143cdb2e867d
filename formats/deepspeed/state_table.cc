#include "formats/deepspeed/state_table.h"

#include <algorithm>
#include <string>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

class StateTableBuilder {
 public:
  StateTableBuilder(const Layout& layout,
                    std::span<const RankStates* const> ranks, bool offloaded)
      : layout_(layout), ranks_(ranks), offloaded_(offloaded) {}

  StateTable Run() {
    const size_t num_groups = layout_.partitioning.groups().size();
    table_.kinds.resize(num_groups);
    table_.whole.resize(num_groups);
    for (size_t g = 0; g < num_groups; ++g) {
      AddKinds(g);
      for (GroupKind& kind : table_.kinds[g]) {
        DecideForm(g, kind);
      }
    }
    return std::move(table_);
  }

 private:
  static const FlatBuffer* FindBuffer(const RankStates& rank, size_t group,
                                      const StateKind& kind) {
    return group < rank.flat.size() ? rank.flat[group].Find(kind) : nullptr;
  }

  void AddKinds(size_t group) {
    std::vector<GroupKind>& kinds = table_.kinds[group];
    kinds.push_back({.kind = StateKind(kMaster),
                     .dtype = ranks_[0]->flat[group].master->dtype});
    for (const RankStates* rank : ranks_) {
      if (group >= rank->flat.size()) {
        continue;  // The agreement check reports it.
      }
      for (const auto& [kind, buffer] : rank->flat[group].buffers) {
        const bool known =
            std::any_of(kinds.begin(), kinds.end(),
                        [&](const GroupKind& k) { return k.kind == kind; });
        if (!known) {
          kinds.push_back({.kind = kind, .dtype = buffer.dtype});
        }
      }
    }
  }

  // The sizes that a rank's buffer of the partition form may have: with the
  // padding at the end or, for masters and elastic files, without it.
  bool FitsPartition(const RankStates& rank, size_t group,
                     const StateKind& kind, int64_t num_elements) const {
    const auto flat_group = static_cast<int32_t>(group);
    const Partitioning& partitioning = layout_.partitioning;
    const int64_t full = partitioning.groups()[group].partition_elements;
    const bool may_be_cut = kind == kMaster || rank.elastic;
    return num_elements == full ||
           (may_be_cut && num_elements == full - partitioning.tail_padding(
                                                     rank.rank, flat_group));
  }

  // The elastic writer cuts the tail padding off a whole-matrix buffer that
  // has none, so real elements are lost.
  bool FitsWhole(const RankStates& rank, size_t group,
                 int64_t num_elements) const {
    const auto flat_group = static_cast<int32_t>(group);
    const int64_t whole = table_.whole[group]->num_elements(rank.rank);
    const int64_t cut =
        whole - layout_.partitioning.tail_padding(rank.rank, flat_group);
    return num_elements == whole ||
           (rank.elastic && num_elements == std::max<int64_t>(0, cut));
  }

  void DecideForm(size_t group, GroupKind& kind) {
    const bool may_be_whole =
        kind.kind == kMomentum && ranks_[0]->writer == Writer::kZero12;
    if (may_be_whole) {
      table_.whole[group].emplace(layout_, static_cast<int32_t>(group));
    }
    bool whole = may_be_whole;
    bool partition = true;
    for (const RankStates* rank : ranks_) {
      const FlatBuffer* buffer = FindBuffer(*rank, group, kind.kind);
      if (buffer == nullptr || !buffer->swap_name.empty()) {
        continue;
      }
      const int64_t size = buffer->num_elements;
      partition = partition && FitsPartition(*rank, group, kind.kind, size);
      whole = whole && FitsWhole(*rank, group, size);
    }
    if (whole && (!partition || !offloaded_)) {
      kind.form = StoredForm::kWholeMatrices;
    }
    if (!whole && !partition) {
      ReportSizes(group, kind.kind, may_be_whole);
    }
    CheckPresence(group, kind);
  }

  std::string TensorName(size_t group, const StateKind& kind) const {
    const auto& parameters = layout_.partitioning.groups()[group].parameters;
    return parameters.empty()
               ? StrCat("flat group ", group, "/", kind)
               : StrCat(layout_.specs[static_cast<size_t>(parameters[0])].name,
                        parameters.size() > 1 ? " (first of its group)" : "",
                        "/", kind);
  }

  void ReportSizes(size_t group, const StateKind& kind, bool may_be_whole) {
    const size_t before = table_.problems.size();
    for (const RankStates* rank : ranks_) {
      const FlatBuffer* buffer = FindBuffer(*rank, group, kind);
      if (buffer == nullptr ||
          FitsPartition(*rank, group, kind, buffer->num_elements) ||
          (may_be_whole && FitsWhole(*rank, group, buffer->num_elements))) {
        continue;
      }
      std::string expected =
          StrCat(layout_.partitioning.groups()[group].partition_elements,
                 " elements of the flat partition");
      if (may_be_whole) {
        expected +=
            StrCat(" or ", table_.whole[group]->num_elements(rank->rank),
                   " of whole matrices");
      }
      table_.problems.emplace_back(
          ErrorCode::kDataLoss, "the state has a size that fits no layout",
          ErrorPlace{.file = rank->file->path(),
                     .tensor = TensorName(group, kind),
                     .expected = expected,
                     .found = StrCat(buffer->num_elements)});
    }
    if (table_.problems.size() == before) {
      table_.problems.emplace_back(
          ErrorCode::kDataLoss,
          "some ranks store whole matrices and others a flat partition: files "
          "of different saves are mixed",
          ErrorPlace{.file = ranks_[0]->file->path(),
                     .tensor = TensorName(group, kind)});
    }
  }

  // Every rank that owns elements of the group must hold the kind, in one
  // dtype.
  void CheckPresence(size_t group, const GroupKind& kind) {
    for (const RankStates* rank : ranks_) {
      const FlatBuffer* buffer = FindBuffer(*rank, group, kind.kind);
      const bool owns_any =
          !layout_.partitioning
               .parameters_on_rank(rank->rank, static_cast<int32_t>(group))
               .empty();
      if (owns_any && buffer == nullptr) {
        table_.problems.emplace_back(
            ErrorCode::kDataLoss,
            StrCat("rank ", rank->rank, " holds no ", kind.kind,
                   " for this group, other ranks do"),
            ErrorPlace{.file = rank->file->path(),
                       .tensor = TensorName(group, kind.kind)});
      } else if (owns_any && buffer->dtype != kind.dtype) {
        table_.problems.emplace_back(
            ErrorCode::kDataLoss, "the dtype differs between ranks",
            ErrorPlace{.file = rank->file->path(),
                       .tensor = TensorName(group, kind.kind),
                       .expected = std::string(DTypeName(kind.dtype)),
                       .found = std::string(DTypeName(buffer->dtype))});
      }
    }
  }

  const Layout& layout_;
  std::span<const RankStates* const> ranks_;
  bool offloaded_;
  StateTable table_;
};

}  // namespace

StateTable BuildStateTable(const Layout& layout,
                           std::span<const RankStates* const> ranks,
                           bool offloaded) {
  return StateTableBuilder(layout, ranks, offloaded).Run();
}

}  // namespace muonstore::deepspeed

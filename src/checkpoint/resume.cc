// How the ranks decide on a checkpoint:
//
//  1. Rank 0 names a tag: the one that is asked for, by name or by its folder,
//     what `latest` names, and
//     then, as long as tags turn out damaged, the newest of the others.
//  2. Every rank opens it; then every rank plans the load; then they compare
//     what they have opened; then every rank reads. After each of these they
//     decide together, by the worst that one of them met: go on, pass this tag
//     over, or give up.
//  3. A tag that was passed over while it was read has left a part of its state
//     in the store. Every later fill writes all of it; without one the store
//     is poisoned.
#include "muonstore/resume.h"

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "converters/locate.h"
#include "muonstore/open.h"
#include "src/base/str.h"
#include "src/checkpoint/counters.h"
#include "src/checkpoint/fill.h"
#include "src/checkpoint/load_steps.h"
#include "src/checkpoint/shared_error.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

constexpr std::string_view kLatest = "latest";

// What an error of a phase means for the tag.
bool IsDamage(const Error& error) {
  return error.code() == ErrorCode::kDataLoss ||
         error.code() == ErrorCode::kNotFound ||
         error.code() == ErrorCode::kUnavailable;
}

// A folder that is no tag is an argument without a meaning to those who named
// it, and damage where `latest` did.
bool IsDamageAtOpen(const Error& error) {
  return IsDamage(error) || error.code() == ErrorCode::kInvalidArgument;
}

bool AnyError(const Error& /*error*/) { return true; }

ScalarMap ClientScalars(const CheckpointInfo& info) {
  ScalarMap scalars;
  for (const auto& [name, value] : info.counters) {
    if (name.starts_with(kScalarPrefix)) {
      scalars.emplace_back(name.substr(kScalarPrefix.size()), value);
    }
  }
  return scalars;
}

// The tags of a root to be tried one after the other, on rank 0.
class Candidates {
 public:
  Candidates(std::shared_ptr<FileSystem> fs, std::string root)
      : fs_(std::move(fs)), root_(std::move(root)) {}

  // There is nothing in the folder, or no folder; what a save that failed
  // leaves is nothing.
  bool IsNothingThere() const {
    const auto status = fs_->Stat(root_);
    if (!status) return true;
    if (status->type != FileType::kDirectory) return false;
    const std::vector<std::string> names = fs_->List(root_);
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) {
                         const std::string path = StrCat(root_, "/", name);
                         const auto entry = fs_->Stat(path);
                         return name.starts_with('.') ||
                                (entry && entry->type == FileType::kDirectory &&
                                 fs_->List(path).empty());
                       });
  }

  // What `latest` names; empty where there is no `latest`. Error(kDataLoss)
  // where it names no tag.
  std::string Latest() const {
    const std::string root = LocateRoot(*fs_, root_);
    std::string tag = LatestOf(*fs_, root);
    if (!tag.empty() && !fs_->Stat(StrCat(root, "/", tag))) {
      throw Error(
          ErrorCode::kDataLoss, "names a tag that is not there",
          {.file = StrCat(root, "/", kLatest), .found = Printable(tag)});
    }
    return tag;
  }

  // The newest that was not tried yet; empty: there is none.
  std::string Next(const std::vector<PassedOverTag>& tried) {
    if (!listed_) List();
    for (const TagListing& tag : tags_) {
      const bool is_new = std::none_of(
          tried.begin(), tried.end(),
          [&](const PassedOverTag& other) { return other.tag == tag.tag; });
      if (is_new) return tag.tag;
    }
    return {};
  }

 private:
  void List() {
    tags_ = ListTags(fs_, root_).tags;
    std::stable_sort(tags_.begin(), tags_.end(),
                     [](const TagListing& a, const TagListing& b) {
                       return std::tie(a.step, a.modified_ns, a.tag) >
                              std::tie(b.step, b.modified_ns, b.tag);
                     });
    listed_ = true;
  }

  std::shared_ptr<FileSystem> fs_;
  std::string root_;
  bool listed_ = false;
  std::vector<TagListing> tags_;
};

class Resumer {
 public:
  Resumer(StateStore& store, const std::string& root,
          const ResumeOptions& options)
      : store_(store),
        ranks_(store.communicator()),
        root_(root),
        options_(options),
        fs_(options.file_system != nullptr ? options.file_system
                                           : PosixFileSystem()),
        candidates_(fs_, root),
        is_fixed_(!options.tag.empty() || options.strict) {}

  ResumeReport Run() {
    Digest digest;
    digest.Add(options_.tag).Add(int64_t{options_.strict});
    digest.Add(int64_t{options_.load.allow_missing_state});
    RequireAgreement(ranks_, "resuming",
                     Caught([&] { store_.impl().RequireUsable(); }),
                     digest.value());
    try {
      while (true) {
        const std::string tag = NextTag();
        if (Try(tag)) break;
      }
    } catch (const Error& error) {
      if (half_filled_) {
        store_.Poison(StrCat("resuming was cut short: ", error.what()));
      }
      throw;
    }
    return std::move(report_);
  }

 private:
  std::string NextTag() {
    std::string tag = options_.tag;
    std::optional<Error> error;
    if (tag.empty() && ranks_.rank() == 0) {
      error = Caught([&] { tag = NextOfRankZero(); });
    }
    if (const auto shared = SharedError(ranks_, error)) throw Error(*shared);
    tag = BroadcastText(ranks_, tag, 0);
    std::array<int64_t, 1> is_fixed = {is_fixed_ ? 1 : 0};
    ranks_.AllReduce(is_fixed, ReduceOp::kMax);
    is_fixed_ = is_fixed[0] != 0;
    if (!tag.empty()) return tag;
    FailWithoutTag();
  }

  std::string NextOfRankZero() {
    if (report_.passed_over.empty()) {
      if (candidates_.IsNothingThere()) return {};
      std::string itself = NameOfTagAt(*fs_, root_);
      is_fixed_ = is_fixed_ || !itself.empty();
      if (!itself.empty()) return itself;
      std::string latest;
      const auto error = Caught([&] { latest = candidates_.Latest(); });
      if (error && (options_.strict || error->code() != ErrorCode::kDataLoss)) {
        throw Error(*error);
      }
      if (!error && !latest.empty()) return latest;
      // Every rank learns of it with the tag that is taken instead.
      if (error) bad_latest_ = error->what();
    }
    return candidates_.Next(report_.passed_over);
  }

  [[noreturn]] void FailWithoutTag() const {
    if (report_.passed_over.empty()) {
      throw Error(ErrorCode::kNotFound, "there is no checkpoint to resume from",
                  {.file = root_});
    }
    std::string reasons;
    for (const PassedOverTag& tag : report_.passed_over) {
      reasons += StrCat("; ", Printable(tag.tag), ": ", tag.reason);
    }
    throw Error(ErrorCode::kDataLoss,
                StrCat("no checkpoint here can be resumed from", reasons),
                {.file = root_});
  }

  // Collective. True: all ranks go on. False: the tag is passed over. Throws
  // where that is no answer.
  bool Decide(const std::string& tag, const std::optional<Error>& own,
              const std::function<bool(const Error&)>& is_damage) {
    const std::optional<Error> error = SharedError(ranks_, own);
    // Some rank may have met what is no damage.
    const bool is_no_damage = own && (!is_damage(*own) || store_.poisoned());
    std::array<int64_t, 1> give_up = {is_no_damage ? 1 : 0};
    ranks_.AllReduce(give_up, ReduceOp::kMax);
    if (!error) return true;
    if (is_fixed_ || give_up[0] != 0) throw Error(*error);
    report_.passed_over.push_back({tag, ReasonOfAll(*error, own)});
    return false;
  }

  // Ranks that met errors of their own take the first one's words.
  std::string ReasonOfAll(const Error& error, const std::optional<Error>& own) {
    std::array<int64_t, 1> first = {own ? ranks_.rank() : ranks_.size()};
    ranks_.AllReduce(first, ReduceOp::kMin);
    return BroadcastText(ranks_, error.what(), static_cast<int32_t>(first[0]));
  }

  // True: the store is filled from the tag.
  bool Try(const std::string& tag) {
    NoteLatest();
    // An older checkpoint of another model is no reason to stop looking.
    const bool is_first = report_.passed_over.empty();
    const auto at_plan = [&](const Error& error) {
      return !is_first || error.code() == ErrorCode::kDataLoss;
    };
    std::unique_ptr<Checkpoint> checkpoint;
    auto error = Caught([&] {
      checkpoint = OpenCheckpoint(
          fs_, root_,
          {.tag = tag, .allow_loss = options_.load.allow_missing_state});
    });
    if (!Decide(tag, error, is_first ? IsDamageAtOpen : AnyError)) return false;
    LoadPlan plan;
    error =
        Caught([&] { plan = PlanLoadOf(store_, *checkpoint, options_.load); });
    if (!Decide(tag, error, at_plan)) return false;
    RequireAgreement(ranks_, "the checkpoint to resume from", std::nullopt,
                     DigestOf(*checkpoint, plan));
    RequireSameContent(ranks_, *checkpoint, plan);
    half_filled_ = true;
    error = FillStore(store_, *checkpoint, plan);
    if (!Decide(tag, error, IsDamage)) return false;
    half_filled_ = false;
    Finish(tag, *checkpoint, std::move(plan));
    return true;
  }

  // Collective.
  void NoteLatest() {
    bad_latest_ = BroadcastText(ranks_, bad_latest_, 0);
    if (bad_latest_.empty()) return;
    report_.passed_over.push_back(
        {std::string(kLatest), std::exchange(bad_latest_, "")});
  }

  void Finish(const std::string& tag, const Checkpoint& checkpoint,
              LoadPlan plan) {
    store_.record() = std::move(plan.record);
    report_.tag = tag;
    report_.step = checkpoint.info().step;
    report_.load = std::move(plan.report);
    report_.scalars = ClientScalars(checkpoint.info());
  }

  StateStore& store_;
  Communicator& ranks_;
  const std::string& root_;
  const ResumeOptions& options_;
  std::shared_ptr<FileSystem> fs_;
  Candidates candidates_;
  bool is_fixed_;  // No other tag will do.
  ResumeReport report_;
  std::string bad_latest_;
  bool half_filled_ = false;
};

}  // namespace

ResumeReport Resume(StateStore& store, const std::string& root,
                    const ResumeOptions& options) {
  return Resumer(store, root, options).Run();
}

}  // namespace muonstore

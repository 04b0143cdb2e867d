#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "formats/native/block_codec.h"
#include "muonstore/save.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/checkpoint/save_job.h"
#include "src/os/output_root.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void Refuse(const char* what, std::string expected,
                         std::string found) {
  throw Error(ErrorCode::kInvalidArgument, what,
              {.expected = std::move(expected), .found = std::move(found)});
}

void RequireScalars(const ScalarMap& scalars) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : scalars) {
    if (name.empty() || !names.insert(name).second) {
      Refuse("the names of scalars are not empty, and each comes once", "",
             Printable(name));
    }
  }
}

// What nobody could resume from.
void RequireSoundRecord(const StateStore& store) {
  const StoreRecord& record = store.record();
  int32_t num_groups = 0;
  for (const ParameterSpec& spec : store.parameters()) {
    if (spec.optimizer == Optimizer::kNone) continue;
    num_groups = std::max(num_groups, spec.group + 1);
  }
  if (std::ssize(record.group_steps) < num_groups) {
    Refuse("the store's record has steps of too few param groups",
           StrCat(num_groups), StrCat(record.group_steps.size()));
  }
  std::vector<int64_t> counts = record.group_steps;
  counts.insert(counts.end(), {record.steps, record.skipped_steps});
  for (const int64_t count : counts) {
    constexpr int64_t kMaxSteps = int64_t{1} << 62;
    if (count >= 0 && count <= kMaxSteps) continue;
    Refuse("the store's record has a number of steps that makes no sense",
           StrCat("0 to ", kMaxSteps), StrCat(count));
  }
}

constexpr int32_t kMaxThreads = 64;

void RequireOptions(const StateStore& store, const std::string& tag,
                    const std::string& root, const SaveOptions& options) {
  os::RequireTagName(tag, root);
  RequireScalars(options.scalars);
  if (options.zstd_level < 0 || options.zstd_level > native::kMaxZstdLevel) {
    Refuse("there is no such zstd level",
           StrCat("0 (off) to ", native::kMaxZstdLevel),
           StrCat(options.zstd_level));
  }
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    Refuse("there is no such number of threads", StrCat("1 to ", kMaxThreads),
           StrCat(options.num_threads));
  }
  RequireSoundRecord(store);
  if (options.keep < 0) {
    Refuse("a number of tags to keep is not negative", "0 (all) or more",
           StrCat(options.keep));
  }
  const size_t num_groups = store.record().group_steps.size();
  if (!options.groups.empty() && options.groups.size() != num_groups) {
    Refuse("hyper-parameters of another number of param groups",
           StrCat(num_groups), StrCat(options.groups.size()));
  }
}

int64_t DigestOf(const std::string& tag, const StoreRecord& record,
                 const SaveOptions& options) {
  Digest digest;
  digest.Add(tag)
      .Add(int64_t{options.asynchronous})
      .Add(int64_t{options.overwrite})
      .Add(int64_t{options.zstd_level})
      .Add(int64_t{options.set_latest})
      .Add(int64_t{options.keep})
      .Add(static_cast<int64_t>(record.convention))
      .Add(static_cast<int64_t>(record.clipping))
      .Add(record.steps)
      .Add(record.skipped_steps);
  for (const int64_t steps : record.group_steps) digest.Add(steps);
  for (const auto& [name, value] : options.scalars) {
    digest.Add(name).Add(ScalarToString(value));
  }
  return digest.value();
}

}  // namespace

struct SaveHandle::State {
  Clock::time_point start = Clock::now();
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::optional<Error> error;
  SaveReport report;

  void End(std::optional<Error> how) {
    const std::lock_guard lock(mutex);
    report.durable_s = SecondsSince(start);
    error = std::move(how);
    done = true;
    ended.notify_all();
  }
};

SaveHandle::SaveHandle(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

void SaveHandle::Wait() const {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->done; });
  if (state_->error) throw Error(*state_->error);
}

bool SaveHandle::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

const SaveReport& SaveHandle::report() const {
  Wait();
  return state_->report;
}

class Saver::Impl {
 public:
  Impl(StateStore& store, std::string root, std::shared_ptr<FileSystem> fs)
      : store_(store),
        root_(std::move(root)),
        fs_(fs != nullptr ? std::move(fs) : PosixFileSystem()),
        ranks_(store.communicator().Duplicate()) {}
  ~Impl() { WaitForEarlier(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  SaveHandle Save(const std::string& tag, const SaveOptions& options) {
    auto state = std::make_shared<State>();
    WaitForEarlier();
    const auto refused = Caught([&] {
      if (ranks_ == nullptr) {
        throw Error(ErrorCode::kInvalidArgument, "the saver is closed");
      }
      store_.impl().RequireUsable();
      RequireOptions(store_, tag, root_, options);
    });
    RequireAgreement(store_.communicator(), "a save", refused,
                     DigestOf(tag, store_.record(), options));
    auto snapshot =
        TakeSnapshot(store_.impl(), {.concurrent = options.asynchronous});
    auto job = std::make_unique<SaveJob>(
        store_, std::move(snapshot),
        SaveRequest{.tag = tag, .root = root_, .fs = fs_, .options = options});
    SaveHandle handle(state);
    if (!options.asynchronous) {
      Run(*state, std::move(job));
      state->report.save_s = SecondsSince(state->start);
      handle.Wait();
      return handle;
    }
    state->report.save_s = SecondsSince(state->start);
    thread_ = std::thread([this, state, job = std::move(job)]() mutable {
      Run(*state, std::move(job));
      LogFailure(*state);
    });
    return handle;
  }

  void Close() {
    WaitForEarlier();
    ranks_.reset();
  }

 private:
  using State = SaveHandle::State;

  void WaitForEarlier() {
    if (thread_.joinable()) thread_.join();
  }

  // The job, and with it the snapshot, ends before the handle says so.
  void Run(State& state, std::unique_ptr<SaveJob> job) {
    std::optional<Error> error;
    try {
      job->Run(*ranks_, state.report);
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error.emplace(ErrorCode::kInternal, caught.what());
    }
    job.reset();
    state.End(std::move(error));
  }

  // Nobody may ever look at the handle.
  void LogFailure(State& state) const {
    const std::lock_guard lock(state.mutex);
    if (!state.error) return;
    Log(LogLevel::kError,
        StrCat("an asynchronous save failed: ", state.error->what()));
  }

  StateStore& store_;
  std::string root_;
  std::shared_ptr<FileSystem> fs_;
  std::unique_ptr<Communicator> ranks_;
  std::thread thread_;
};

Saver::Saver(StateStore& store, std::string root,
             std::shared_ptr<FileSystem> file_system)
    : impl_(std::make_unique<Impl>(store, std::move(root),
                                   std::move(file_system))) {}

Saver::~Saver() = default;

SaveHandle Saver::Save(const std::string& tag, const SaveOptions& options) {
  return impl_->Save(tag, options);
}

void Saver::Close() { impl_->Close(); }

}  // namespace muonstore

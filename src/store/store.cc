#include "muonstore/store.h"

#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/store/lease_state.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// `kind` by its canonical name.
std::string_view RequireWritten(const StateStore::Impl& store,
                                int32_t parameter, const StateKind& kind) {
  const std::string_view known = store.RequireKind(parameter, kind);
  if (known == kGradient) {
    throw Error(ErrorCode::kInvalidArgument,
                "gradients are written by OffloadExecutor::Accumulate, which "
                "keeps count of what has come",
                {.tensor = store.key(parameter, known).parameter});
  }
  return known;
}

void FillPiece(const StatePiece<std::byte>& piece, DType dtype,
               std::span<const float> whole) {
  const Fragment& at = piece.fragment;
  const auto row_bytes = static_cast<size_t>(at.length * SizeBytes(dtype));
  for (int64_t i = 0; i < at.count; ++i) {
    ConvertFromF32(
        whole.subspan(static_cast<size_t>(at.tensor_offset + i * at.stride),
                      static_cast<size_t>(at.length)),
        dtype,
        piece.data.subspan(static_cast<size_t>(i) * row_bytes, row_bytes));
  }
}

}  // namespace

std::string_view ClippingModeName(ClippingMode mode) {
  switch (mode) {
    case ClippingMode::kGradients:
      return "gradients";
    case ClippingMode::kDeepSpeed:
      return "deepspeed";
    case ClippingMode::kOff:
      return "off";
  }
  return "unknown";
}

StateStore::StateStore(std::vector<ParameterSpec> parameters,
                       Partitioning partitioning, StoreOptions options)
    : impl_(std::make_unique<Impl>(
          std::move(parameters), std::move(partitioning), std::move(options))) {
}

StateStore::~StateStore() = default;

std::span<const ParameterSpec> StateStore::parameters() const {
  return impl_->parameters;
}

const Partitioning& StateStore::partitioning() const {
  return impl_->partitioning;
}

int32_t StateStore::rank() const { return impl_->communicator->rank(); }

Communicator& StateStore::communicator() const { return *impl_->communicator; }

int32_t StateStore::FindParameter(std::string_view name) const {
  return impl_->Find(name);
}

std::vector<StateKind> StateStore::kinds(int32_t parameter) const {
  if (parameter < 0 || parameter >= std::ssize(impl_->parameters)) {
    throw Error(ErrorCode::kInvalidArgument, "there is no such parameter",
                {.expected = StrCat("0 to ", std::ssize(impl_->parameters) - 1),
                 .found = StrCat(parameter)});
  }
  const ParameterSpec& spec = impl_->parameters[static_cast<size_t>(parameter)];
  std::vector<StateKind> kinds;
  for (const std::string_view kind : kStoreKinds) {
    if (HasKind(spec.optimizer, kind)) kinds.emplace_back(kind);
  }
  return kinds;
}

ReadLease StateStore::Read(std::string_view name, const StateKind& kind) {
  impl_->RequireUsable();
  const int32_t parameter = impl_->Find(name);
  return ReadLease(std::make_unique<LeaseState>(
      *impl_, parameter, impl_->RequireKind(parameter, kind), LeaseUse::kRead));
}

WriteLease StateStore::Write(std::string_view name, const StateKind& kind) {
  impl_->RequireUsable();
  const int32_t parameter = impl_->Find(name);
  return WriteLease(std::make_unique<LeaseState>(
      *impl_, parameter, RequireWritten(*impl_, parameter, kind),
      LeaseUse::kWrite));
}

uint64_t StateStore::generation(std::string_view name,
                                const StateKind& kind) const {
  const int32_t parameter = impl_->Find(name);
  return impl_->leases.generation(parameter,
                                  impl_->RequireKind(parameter, kind));
}

void StateStore::Set(std::string_view name, const StateKind& kind,
                     std::span<const float> whole) {
  impl_->RequireUsable();
  const int32_t parameter = impl_->Find(name);
  const std::string_view known = RequireWritten(*impl_, parameter, kind);
  const int64_t num_elements =
      impl_->parameters[static_cast<size_t>(parameter)].shape.num_elements();
  if (static_cast<int64_t>(whole.size()) != num_elements) {
    throw Error(ErrorCode::kInvalidArgument,
                "the values do not fill the tensor",
                {.tensor = impl_->key(parameter, known).ToString(),
                 .expected = StrCat(num_elements, " elements"),
                 .found = StrCat(whole.size())});
  }
  const DType dtype = impl_->dtype(parameter, known);
  Overwrite(*impl_, parameter, known, [&](const auto& pieces) {
    for (const StatePiece<std::byte>& piece : pieces) {
      FillPiece(piece, dtype, whole);
    }
  });
}

StoreRecord& StateStore::record() { return impl_->record; }

const StoreRecord& StateStore::record() const { return impl_->record; }

std::vector<PinReport> StateStore::pin_reports() const {
  impl_->RequireUsable();
  std::vector<PinReport> reports;
  for (const Arena* arena : impl_->segments->arenas()) {
    reports.push_back(arena->pin_report());
  }
  return reports;
}

void StateStore::Poison(std::string_view reason) { impl_->Poison(reason); }

bool StateStore::poisoned() const { return impl_->poisoned(); }

void StateStore::Close() { impl_->Close(); }

}  // namespace muonstore

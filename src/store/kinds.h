// Which state kinds a parameter has, in which dtype, and which parameters have
// no place in a store.

#ifndef MUONSTORE_SRC_STORE_KINDS_H_
#define MUONSTORE_SRC_STORE_KINDS_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/state_kind.h"

namespace muonstore {

// In the order in which a store lists and allocates them.
inline constexpr std::array<std::string_view, 6> kStoreKinds = {
    kMaster, kMomentum, kExpAvg, kExpAvgSq, kGradient, kWeight};

// What a checkpoint always holds. It holds weights that are not the rounded
// masters too; accumulated gradients are no part of it.
inline constexpr std::array<std::string_view, 4> kSavedKinds = {
    kMaster, kMomentum, kExpAvg, kExpAvgSq};

// Index into kStoreKinds; kStoreKinds.size() for any other kind.
size_t StoreKindIndex(std::string_view kind);

bool IsSavedKind(std::string_view kind);

bool HasKind(Optimizer optimizer, std::string_view kind);

// f32, or the parameter's weight dtype for kWeight.
DType StoreDType(const ParameterSpec& parameter, std::string_view kind);

// Error(kInvalidArgument) for an optimizer other than Muon, Adam and none, a
// Muon parameter that is not a matrix, a name that comes twice, a flat group of
// several weight dtypes or optimizers.
void RequireStorable(std::span<const ParameterSpec> parameters,
                     const Partitioning& partitioning);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_KINDS_H_

// An error of one rank, made known to all.

#ifndef MUONSTORE_SRC_CHECKPOINT_SHARED_ERROR_H_
#define MUONSTORE_SRC_CHECKPOINT_SHARED_ERROR_H_

#include <optional>
#include <string>

#include "muonstore/communicator.h"
#include "muonstore/error.h"

namespace muonstore {

// Collective: a text of one rank on every rank.
std::string BroadcastText(Communicator& ranks, std::string text, int32_t root);

// Collective. Where no rank brings an error: nothing. Else, on every rank: its
// own, or that of the first rank that has one, with the rank's number.
std::optional<Error> SharedError(Communicator& ranks,
                                 const std::optional<Error>& own);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_SHARED_ERROR_H_

// Random drafts: every kind of value, shared and cyclic.
#ifndef MUONSTORE_TESTS_TORCHFILE_RANDOM_DRAFT_H_
#define MUONSTORE_TESTS_TORCHFILE_RANDOM_DRAFT_H_

#include <cstdint>
#include <memory>

#include "formats/torchfile/draft.h"

namespace muonstore::torchfile {

std::unique_ptr<Draft> RandomDraft(uint32_t seed);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_RANDOM_DRAFT_H_

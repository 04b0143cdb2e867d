#include "formats/torchfile/damaged.h"

#include <utility>

#include "muonstore/error.h"

namespace muonstore::torchfile {

void ThrowDamaged(std::string message, std::string expected,
                  std::string found) {
  ErrorPlace place;
  place.expected = std::move(expected);
  place.found = std::move(found);
  throw Error(ErrorCode::kDataLoss, std::move(message), std::move(place));
}

}  // namespace muonstore::torchfile

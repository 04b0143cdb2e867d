// Looking values up in a ScalarMap.

#ifndef MUONSTORE_SRC_STATE_SCALAR_MAP_H_
#define MUONSTORE_SRC_STATE_SCALAR_MAP_H_

#include <string_view>

#include "muonstore/checkpoint.h"

namespace muonstore {

// A counter or hyper-parameter; null where there is none.
const Scalar* FindScalar(const ScalarMap& map, std::string_view name);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STATE_SCALAR_MAP_H_

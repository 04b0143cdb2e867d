// The cut of one checkpoint for the state of another.
#ifndef MUONSTORE_CONVERTERS_LIKE_LAYOUT_H_
#define MUONSTORE_CONVERTERS_LIKE_LAYOUT_H_

#include "converters/target_layout.h"
#include "muonstore/checkpoint.h"

namespace muonstore {

// Exactly the order, groups, paddings, ranks and precision of `request.like`.
// Error(kInvalidArgument) where names, shapes or param groups differ, or where
// the request asks for something else at the same time.
LayoutChoice LayoutLike(const Checkpoint& source, const LayoutRequest& request);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_LIKE_LAYOUT_H_

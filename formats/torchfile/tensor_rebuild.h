// torch._utils._rebuild_*: from call arguments to checked tensor views.
#ifndef MUONSTORE_FORMATS_TORCHFILE_TENSOR_REBUILD_H_
#define MUONSTORE_FORMATS_TORCHFILE_TENSOR_REBUILD_H_

#include "formats/torchfile/globals_policy.h"
#include "formats/torchfile/value.h"

namespace muonstore::torchfile {

// The tensor that a call gives; `rule` is one of the kRebuild... rules other
// than kRebuildFromType, `args` a tuple. Every element of the view is proven to
// lie in its storage: Error(kDataLoss) otherwise. `rebuild` is left open.
TensorInfo RebuildTensor(CallRule rule, const Value& args);

// The dict of Python attributes in a `state` argument, or kNoNode.
NodeId AttributesOf(const Value& state);

// Error(kDataLoss) unless all elements of the view lie in the storage.
void CheckView(const TensorInfo& tensor, const StorageInfo& storage);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TENSOR_REBUILD_H_

// Names for the tensors of a file: where they are in its containers.
#ifndef MUONSTORE_FORMATS_TORCHFILE_TENSOR_PATHS_H_
#define MUONSTORE_FORMATS_TORCHFILE_TENSOR_PATHS_H_

#include <functional>
#include <string>

#include "formats/torchfile/value.h"

namespace muonstore::torchfile {

// Calls `visit` for each tensor that dicts, lists and tuples lead to from the
// root, in file order: "/optimizer/state/0/exp_avg", "/list[1]". A container
// that occurs twice is entered once; any depth and cycles are fine.
void VisitTensors(const ValueTree& tree,
                  const std::function<void(const std::string& path,
                                           const TensorInfo& tensor)>& visit);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TENSOR_PATHS_H_

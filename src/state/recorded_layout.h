// How a checkpoint records that a parameter is seen as matrices.
//
// Failures: Error(kDataLoss) for a record that is no layout.
#ifndef MUONSTORE_SRC_STATE_RECORDED_LAYOUT_H_
#define MUONSTORE_SRC_STATE_RECORDED_LAYOUT_H_

#include <string>

#include "muonstore/checkpoint.h"
#include "muonstore/matrix_layout.h"

namespace muonstore {

// Whole where nothing is recorded.
MatrixLayout RecordedLayout(const CheckpointInfo& info,
                            const std::string& parameter);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STATE_RECORDED_LAYOUT_H_

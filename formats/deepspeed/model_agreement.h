// Do the model files of all ranks belong to one save, and is each one
// consistent in itself?
//
// In stage 3 every rank writes a model file: all but the rank's own pieces of
// frozen parameters must be the same in each.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_MODEL_AGREEMENT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_MODEL_AGREEMENT_H_

#include <cstdint>
#include <vector>

#include "formats/deepspeed/model_states.h"
#include "muonstore/error.h"

namespace muonstore::deepspeed {

// Counters, rank count, version, buffers, and the shapes of all parameters,
// against those of rank 0's file.
std::vector<Error> CompareModels(const ModelStates& first,
                                 const ModelStates& other);

// The shapes that param_shapes and frozen_param_shapes give against the tensors
// of the file, also where the numbers of elements agree. In stage 3 the file
// has placeholders instead, so that only doubled names show.
std::vector<Error> CheckShapes(const ModelStates& model, int32_t stage);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_MODEL_AGREEMENT_H_

// Which dtypes have a value as one real number.
#ifndef MUONSTORE_SRC_INSPECT_REAL_DTYPE_H_
#define MUONSTORE_SRC_INSPECT_REAL_DTYPE_H_

#include "muonstore/dtype.h"

namespace muonstore {

// True for the dtypes that ConvertToF64 takes.
inline bool IsReal(DType dtype) {
  return !IsComplex(dtype) && dtype != DType::kF4E2M1FNx2;
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_REAL_DTYPE_H_

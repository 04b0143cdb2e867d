// The text that the model learns, and which samples a step sees.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_TEXT_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_TEXT_H_

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace train_gpt {

// The bytes of `file`; where it is empty, of the licences that every Debian
// system has. Throws where there is nothing to read.
std::string ReadText(const std::string& file);

// Samples [first, first + count) of a step: [count, length] bytes as integers.
// They depend on seed, step and index alone, so that any rank can make its own.
struct SampleRange {
  int64_t step = 0;
  int64_t first = 0;
  int64_t count = 0;
};
at::Tensor Samples(const std::string& text, uint64_t seed, int64_t length,
                   const SampleRange& range);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_TEXT_H_

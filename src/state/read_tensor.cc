#include <algorithm>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Converted reads go through a buffer of this size, whatever the tensor's.
constexpr int64_t kBlockBytes = 4 << 20;

Error MissingElements(const CheckpointTensor& tensor, ElementRange missing) {
  return Error(ErrorCode::kDataLoss,
               StrCat("the checkpoint does not hold elements ", missing.begin,
                      " to ", missing.end - 1, "; --allow-loss takes the rest"),
               {.tensor = tensor.key.ToString(),
                .expected = StrCat(tensor.shape.num_elements(), " elements"),
                .found = StrCat(tensor.shape.num_elements() - missing.size())});
}

void CheckRange(const CheckpointTensor& tensor, ElementRange range,
                size_t out_bytes) {
  const int64_t num_elements = tensor.shape.num_elements();
  if (range.begin < 0 || range.begin > range.end || range.end > num_elements) {
    throw Error(ErrorCode::kInvalidArgument, "the range is outside the tensor",
                {.tensor = tensor.key.ToString(),
                 .expected = StrCat("within [0, ", num_elements, ")"),
                 .found = StrCat("[", range.begin, ", ", range.end, ")")});
  }
  const auto want = static_cast<size_t>(range.size()) *
                    static_cast<size_t>(SizeBytes(tensor.dtype));
  if (out_bytes != want) {
    throw Error(ErrorCode::kInvalidArgument, "the output has another size",
                {.tensor = tensor.key.ToString(),
                 .expected = StrCat(want, " bytes"),
                 .found = StrCat(out_bytes, " bytes")});
  }
  for (const ElementRange& missing : tensor.missing) {
    if (missing.begin < range.end && range.begin < missing.end) {
      throw MissingElements(tensor, missing);
    }
  }
}

// Copies one op; a strided one run by run.
void RunOp(const Checkpoint& checkpoint, const CopyOp& op, size_t element_bytes,
           std::span<std::byte> out) {
  const size_t run_bytes = static_cast<size_t>(op.length) * element_bytes;
  for (int64_t i = 0; i < op.count; ++i) {
    const auto at = static_cast<size_t>(op.dest_offset + i * op.dest_stride);
    checkpoint.ReadSegment(op.source_segment,
                           op.source_offset + i * op.source_stride,
                           out.subspan(at * element_bytes, run_bytes));
  }
}

// Fills `out` with the elements of the range as the segments store them.
void ReadStored(const Checkpoint& checkpoint, size_t tensor, ElementRange range,
                DType dtype, std::span<std::byte> out) {
  const std::vector<Fragment> source =
      Restrict(checkpoint.fragments(tensor), range);
  const Fragment dest{.tensor_offset = range.begin, .length = range.size()};
  for (const CopyOp& op : PlanCopy(source, std::span(&dest, 1))) {
    RunOp(checkpoint, op, static_cast<size_t>(SizeBytes(dtype)), out);
  }
}

// round(master), block by block.
void ReadDerived(const Checkpoint& checkpoint, size_t tensor,
                 ElementRange range, std::span<std::byte> out) {
  const auto item =
      static_cast<size_t>(SizeBytes(checkpoint.tensors()[tensor].dtype));
  constexpr auto kBlock = kBlockBytes / static_cast<int64_t>(sizeof(float));
  std::vector<float> masters;
  for (int64_t at = range.begin; at < range.end; at += kBlock) {
    const ElementRange part{at, std::min(range.end, at + kBlock)};
    masters.resize(static_cast<size_t>(part.size()));
    ReadStored(checkpoint, tensor, part, DType::kF32,
               std::as_writable_bytes(std::span(masters)));
    ConvertFromF32(masters, checkpoint.tensors()[tensor].dtype,
                   out.subspan(static_cast<size_t>(at - range.begin) * item,
                               masters.size() * item));
  }
}

template <typename T, typename Convert>
std::vector<T> ReadConverted(const Checkpoint& checkpoint, size_t tensor,
                             ElementRange range, const Convert& convert) {
  const CheckpointTensor& info = checkpoint.tensors()[tensor];
  const int64_t element_bytes = SizeBytes(info.dtype);
  const int64_t block = std::max<int64_t>(1, kBlockBytes / element_bytes);
  std::vector<T> values(
      static_cast<size_t>(std::max<int64_t>(range.size(), 0)));
  std::vector<std::byte> buffer;
  for (int64_t at = range.begin; at < range.end; at += block) {
    const ElementRange part{at, std::min(range.end, at + block)};
    buffer.resize(static_cast<size_t>(part.size() * element_bytes));
    ReadTensor(checkpoint, tensor, part, buffer);
    convert(info.dtype, buffer,
            std::span(values).subspan(static_cast<size_t>(at - range.begin),
                                      static_cast<size_t>(part.size())));
  }
  return values;
}

}  // namespace

std::optional<size_t> FindTensor(const Checkpoint& checkpoint,
                                 const TensorKey& key) {
  const auto& aliases = checkpoint.info().aliases;
  const auto alias = aliases.find(key.parameter);
  const std::string& name =
      alias == aliases.end() ? key.parameter : alias->second;
  const auto tensors = checkpoint.tensors();
  const auto it = std::find_if(
      tensors.begin(), tensors.end(), [&](const CheckpointTensor& tensor) {
        return tensor.key.kind == key.kind && tensor.key.parameter == name;
      });
  if (it == tensors.end()) {
    return std::nullopt;
  }
  return static_cast<size_t>(it - tensors.begin());
}

std::vector<int32_t> RanksOf(const Checkpoint& checkpoint, size_t tensor) {
  std::vector<int32_t> ranks;
  for (const Fragment& fragment : checkpoint.fragments(tensor)) {
    ranks.push_back(
        checkpoint.segments()[static_cast<size_t>(fragment.segment)].rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void ReadTensor(const Checkpoint& checkpoint, size_t tensor, ElementRange range,
                std::span<std::byte> out) {
  const CheckpointTensor& info = checkpoint.tensors()[tensor];
  CheckRange(info, range, out.size());
  if (range.size() == 0) {
    return;
  }
  try {
    if (info.derived) {
      ReadDerived(checkpoint, tensor, range, out);
    } else {
      ReadStored(checkpoint, tensor, range, info.dtype, out);
    }
  } catch (const Error& error) {
    throw error.WithTensor(info.key.ToString());
  }
}

std::vector<float> ReadTensorF32(const Checkpoint& checkpoint, size_t tensor,
                                 ElementRange range) {
  return ReadConverted<float>(checkpoint, tensor, range, ConvertToF32);
}

std::vector<double> ReadTensorF64(const Checkpoint& checkpoint, size_t tensor,
                                  ElementRange range) {
  return ReadConverted<double>(checkpoint, tensor, range, ConvertToF64);
}

}  // namespace muonstore

#include "tests/native/random_checkpoint.h"

#include <string>
#include <utility>
#include <vector>

#include "muonstore/dtype.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

using testutil::MemoryCheckpoint;
using testutil::MemoryTensor;

int64_t Pick(std::mt19937& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

// Bytes that are another row for each element of each tensor, NaNs included.
std::vector<std::byte> UniqueBytes(size_t tensor, int64_t num_elements,
                                   int64_t element_bytes) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < num_elements; ++i) {
    uint64_t value =
        (static_cast<uint64_t>(tensor) << 32) + static_cast<uint64_t>(i) + 1;
    value *= 0x9E3779B97F4A7C15U;
    for (int64_t b = 0; b < element_bytes; ++b) {
      bytes.push_back(static_cast<std::byte>(value >> (56 - 8 * (b % 8))));
    }
  }
  return bytes;
}

class Maker {
 public:
  explicit Maker(std::mt19937& random) : random_(random) {}

  std::unique_ptr<MemoryCheckpoint> Run() {
    Describe();
    const int64_t count = Pick(random_, 1, 6);
    for (int64_t i = 0; i < count; ++i) {
      AddTrained(i);
    }
    AddOthers();
    return std::move(checkpoint_);
  }

 private:
  void Describe() {
    CheckpointInfo& info = checkpoint_->mutable_info();
    info.producer = "test";
    info.precision = "bf16";
    info.step = 7;
    info.groups = {
        {.name = "muon",
         .optimizer = Optimizer::kMuon,
         .hyper_parameters = {{"lr", 0.1 + 0.2}, {"none", {}}}},
        {.name = "ad%am\xFF",
         .optimizer = Optimizer::kAdam,
         .hyper_parameters = {{"betas", std::vector<double>{0.9, 1.0}},
                              {"int", int64_t{1}},
                              {"float", 1.0},
                              {"inf", -HUGE_VAL},
                              {"nan", std::nan("")},
                              {"on", true}},
         .step = 7}};
    info.counters = {{"global_steps", int64_t{-3}}, {"text", "a\"\\\n"}};
    info.aliases = {{"tied", "p0"}};
  }

  std::vector<int64_t> RandomShape() {
    std::vector<int64_t> shape;
    const int64_t rank = Pick(random_, 0, 4);
    for (int64_t axis = 0; axis < rank; ++axis) {
      shape.push_back(Pick(random_, 0, 12) == 0 ? 0 : Pick(random_, 1, 9));
    }
    return shape;
  }

  size_t Add(const std::string& name, const std::string& kind,
             const std::vector<int64_t>& shape, DType dtype, int32_t group) {
    const size_t index = checkpoint_->tensors().size();
    std::vector<std::byte> bytes =
        UniqueBytes(index, Shape(shape).num_elements(), SizeBytes(dtype));
    if (dtype == DType::kBool) {
      for (std::byte& byte : bytes) {
        byte &= std::byte{1};
      }
    }
    const size_t tensor = checkpoint_->Add(
        MemoryTensor{.parameter = name,
                     .kind = kind,
                     .shape = shape,
                     .dtype = dtype,
                     .group = group,
                     .num_pieces = static_cast<int32_t>(Pick(random_, 1, 3))},
        bytes);
    if (group == 1) {
      checkpoint_->mutable_tensor(tensor).optimizer = Optimizer::kAdam;
    }
    return tensor;
  }

  void AddTrained(int64_t i) {
    const auto group = static_cast<int32_t>(Pick(random_, 0, 1));
    const std::string name =
        StrCat("p", i, Pick(random_, 0, 1) == 0 ? "" : "/%\xC3\x28\x01.w");
    const std::vector<int64_t> shape = RandomShape();
    Add(name, "master", shape, DType::kF32, group);
    if (group == 0) {
      const DType dtype = Pick(random_, 0, 1) == 0 ? DType::kF32 : DType::kBF16;
      const size_t momentum = Add(name, "momentum", shape, dtype, group);
      LoseSome(momentum);
    } else {
      Add(name, "exp_avg", shape, DType::kF32, group);
      Add(name, "second/moment", {Shape(shape).num_rows()}, DType::kF32, group);
    }
    AddWeight(name, shape, group);
  }

  void LoseSome(size_t tensor) {
    const int64_t count = checkpoint_->tensors()[tensor].shape.num_elements();
    if (count > 4 && Pick(random_, 0, 3) == 0) {
      checkpoint_->mutable_tensor(tensor).missing = {{1, 2},
                                                     {count - 1, count}};
    }
  }

  void AddWeight(const std::string& name, const std::vector<int64_t>& shape,
                 int32_t group) {
    switch (Pick(random_, 0, 2)) {
      case 0:
        Add(name, "weight", shape, DType::kBF16, group);
        break;
      case 1:
        checkpoint_->AddDerived(name, DType::kBF16);
        break;
      default:
        break;
    }
  }

  void AddOthers() {
    constexpr DType kDTypes[] = {
        DType::kF16,  DType::kF64,  DType::kF8E4M3FN,  DType::kI64,
        DType::kU8,   DType::kBool, DType::kC64,       DType::kC32,
        DType::kC128, DType::kBF16, DType::kF8E5M2FNUZ};
    int i = 0;
    for (const DType dtype : kDTypes) {
      Add(StrCat("b", i++), "buffer", RandomShape(), dtype, -1);
    }
    Add("frozen", "weight", {3, 5}, DType::kBF16, -1);
    Add("", "", {2}, DType::kF32, -1);
    Add("..", "buffer", {}, DType::kI32, -1);
    checkpoint_->mutable_info().frozen = {"frozen"};
  }

  std::mt19937& random_;
  std::unique_ptr<MemoryCheckpoint> checkpoint_ =
      std::make_unique<MemoryCheckpoint>();
};

}  // namespace

std::unique_ptr<MemoryCheckpoint> RandomCheckpoint(std::mt19937& random) {
  return Maker(random).Run();
}

ZeroRule RandomRule(std::mt19937& random) {
  const auto stage = static_cast<int32_t>(Pick(random, 1, 3));
  return {.stage = stage,
          .num_ranks = static_cast<int32_t>(Pick(random, 1, 5)),
          .muon_order = Pick(random, 0, 1) == 0 ? MuonOrder::kAsGiven
                                                : MuonOrder::kSortedByShape,
          .flat_alignment_elements = Pick(random, 1, 9),
          .round_robin = Pick(random, 0, 1) == 0,
          .parameter_alignment = Pick(random, 0, 1) == 0,
          .sub_group_size = Pick(random, 1, 300),
          .whole_rows = stage == 3 && Pick(random, 0, 1) == 0};
}

std::unique_ptr<MemoryCheckpoint> SmallCheckpoint(float scale) {
  auto checkpoint = std::make_unique<MemoryCheckpoint>();
  checkpoint->mutable_info().groups = {
      {.name = "muon", .optimizer = Optimizer::kMuon}};
  checkpoint->mutable_info().step = static_cast<int64_t>(scale);
  for (const auto& [name, kind, shape, group] :
       {std::tuple("a", "master", std::vector<int64_t>{7, 9}, 0),
        std::tuple("a", "momentum", std::vector<int64_t>{7, 9}, 0),
        std::tuple("b", "master", std::vector<int64_t>{40, 50}, 0),
        std::tuple("v", "master", std::vector<int64_t>{5}, 0),
        std::tuple("frozen", "weight", std::vector<int64_t>{3, 4}, -1),
        std::tuple("buf", "buffer", std::vector<int64_t>{2}, -1)}) {
    checkpoint->Add(
        MemoryTensor{
            .parameter = name, .kind = kind, .shape = shape, .group = group},
        testutil::UniqueValues(Shape(shape).num_elements(), scale));
  }
  return checkpoint;
}

}  // namespace muonstore::native

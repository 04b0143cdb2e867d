#include "tests/torchfile/random_draft.h"

#include <random>
#include <string>
#include <vector>

#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::unique_ptr<Draft> Run() {
    MakeStorages();
    const int num_values = Pick(5, 120);
    for (int i = 0; i < num_values; ++i) {
      values_.push_back(Make());
    }
    CloseCycles();
    draft_->set_root(draft_->List(values_));
    return std::move(draft_);
  }

 private:
  int Pick(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  // An earlier value.
  NodeId Any() {
    return values_.empty() ? draft_->None()
                           : values_[static_cast<size_t>(Pick(
                                 0, static_cast<int>(values_.size()) - 1))];
  }
  std::vector<NodeId> Some(int most) {
    std::vector<NodeId> items(static_cast<size_t>(Pick(0, most)));
    for (NodeId& item : items) {
      item = Any();
    }
    return items;
  }
  std::string RandomText(int most) {
    static constexpr const char* kCharacters[] = {
        "a",
        "Z",
        "0",
        ".",
        "/",
        "\n",
        "\t",
        "\"",
        "\xC3\xA4",
        "\xE2\x82\xAC",
        "\xF0\x9F\x98\x80",
        "\xED\xA0\x80" /* a lone surrogate */};
    std::string text;
    const int length = Pick(0, most);
    for (int i = 0; i < length; ++i) {
      text += kCharacters[Pick(0, 11)];
    }
    return text;
  }
  std::string RandomBytes(int most) {
    std::string bytes(static_cast<size_t>(Pick(0, most)), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(Pick(0, 255));
    }
    return bytes;
  }

  void MakeStorages() {
    constexpr DType kTyped[] = {DType::kF32, DType::kBF16, DType::kF16,
                                DType::kF64, DType::kI64,  DType::kBool,
                                DType::kU8,  DType::kC64};
    for (int i = 0; i < 4; ++i) {
      StorageSpec spec;
      spec.dtype = kTyped[Pick(0, 7)];
      spec.untyped = Pick(0, 3) == 0;
      spec.num_elements = i == 0 ? 0 : Pick(0, 400);
      spec.location = Pick(0, 3) == 0 ? "cuda:1" : "cpu";
      storages_.push_back(draft_->Storage(spec));
    }
  }

  NodeId Make() {
    switch (Pick(0, 5)) {
      case 0:
      case 1:
        return MakeNumber();
      case 2:
        return MakeText();
      case 3:
        return MakeTensor();
      default:
        return MakeContainer();
    }
  }

  NodeId MakeNumber() {
    switch (Pick(0, 5)) {
      case 0:
        return draft_->None();
      case 1:
        return draft_->Bool(Pick(0, 1) == 1);
      case 2:
        return draft_->Float(std::normal_distribution<double>(0, 1e6)(random_));
      case 3:
        return draft_->BigInt(RandomBytes(Pick(0, 9) == 0 ? 400 : 20) + "\x01");
      default: {
        const auto bits = static_cast<uint64_t>(random_()) << 32 | random_();
        return draft_->Int(static_cast<int64_t>(bits) >> Pick(0, 63));
      }
    }
  }

  NodeId MakeText() {
    switch (Pick(0, 3)) {
      case 0:
        return draft_->Bytes(RandomBytes(300));
      case 1:
        return draft_->Global("some.module", StrCat("Class", Pick(0, 300)));
      default:
        return draft_->Str(RandomText(12));
    }
  }

  NodeId MakeTensor() {
    const NodeId storage = storages_[static_cast<size_t>(Pick(0, 3))];
    const StorageInfo info = draft_->value(storage).AsStorage();
    TensorSpec spec;
    spec.storage = storage;
    spec.dtype =
        info.untyped && Pick(0, 1) == 0 ? DType::kF8E4M3FN : info.dtype;
    spec.requires_grad = Pick(0, 1) == 1;
    const int64_t room = info.num_elements;
    if (room == 0 || Pick(0, 4) == 0) {
      spec.shape = Shape({Pick(0, 3), 0});
    } else if (Pick(0, 4) == 0) {
      spec.storage_offset = room - 1;  // A scalar at the end.
    } else {
      const int64_t rows = Pick(1, 4);
      const int64_t columns = room / rows;
      spec.shape = Shape({columns, rows});
      spec.strides = {{1, columns}};  // Transposed.
      spec.storage_offset = room - rows * columns;
    }
    if (Pick(0, 3) == 0) {
      spec.attributes = draft_->Dict();
      draft_->SetItem(spec.attributes, "ds_id", Any());
    }
    return draft_->Tensor(spec);
  }

  NodeId MakeContainer() {
    switch (Pick(0, 7)) {
      case 0:
        return draft_->List(Some(8));
      case 1:
        return draft_->Tuple(Some(6));
      case 2:
        return draft_->Set(Some(4));
      case 3:
        return draft_->Size(Shape({Pick(0, 5), Pick(0, 70000), Pick(0, 2)}));
      case 4:
        return draft_->Object(
            {.module = "a.b",
             .name = StrCat("C", Pick(0, 3)),
             .args = Some(3),
             .construction = Pick(0, 1) == 0 ? Construction::kReduce
                                             : Construction::kNewObj,
             .state = Pick(0, 1) == 0 ? MakeDict(false) : kNoNode});
      default:
        return MakeDict(Pick(0, 1) == 1);
    }
  }

  NodeId MakeDict(bool is_ordered) {
    const NodeId dict = is_ordered ? draft_->OrderedDict() : draft_->Dict();
    const int size = Pick(0, 9) == 0 ? Pick(999, 2100) : Pick(0, 6);
    for (int i = 0; i < size; ++i) {
      draft_->SetItem(dict, StrCat("k", i), Any());
    }
    if (is_ordered && Pick(0, 2) == 0) {
      draft_->SetState(dict, MakeDict(false));
    }
    return dict;
  }

  // Lists and dicts take in what was made after them, themselves included.
  void CloseCycles() {
    for (const NodeId id : values_) {
      const Value value = draft_->value(id);
      if (value.is(ValueType::kList) && Pick(0, 2) == 0) {
        draft_->Append(id, Any());
      } else if (value.is(ValueType::kDict) && Pick(0, 2) == 0) {
        draft_->SetItem(id, draft_->Int(Pick(0, 70000)), Any());
      }
    }
  }

  std::mt19937 random_;
  std::unique_ptr<Draft> draft_ = std::make_unique<Draft>();
  std::vector<NodeId> storages_;
  std::vector<NodeId> values_;
};

}  // namespace

std::unique_ptr<Draft> RandomDraft(uint32_t seed) {
  return Generator(seed).Run();
}

}  // namespace muonstore::torchfile

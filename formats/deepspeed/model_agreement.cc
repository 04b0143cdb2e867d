#include "formats/deepspeed/model_agreement.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

constexpr const char* kNotThere = "nothing";

std::string Render(const NamedShape& shape) {
  return shape.name + " " + shape.shape.ToString();
}

std::string CounterOf(const ModelStates& model, std::string_view name) {
  for (const auto& [key, value] : model.counters) {
    if (key == name) {
      return ScalarToString(value);
    }
  }
  return kNotThere;
}

class Comparison {
 public:
  Comparison(const ModelStates& first, const ModelStates& other)
      : first_(first), other_(other) {}

  std::vector<Error> Run() {
    for (const char* name :
         {"global_steps", "skipped_steps", "global_samples"}) {
      Equal(name, CounterOf(first_, name), CounterOf(other_, name));
    }
    Equal("dp_world_size", StrCat(first_.dp_world_size),
          StrCat(other_.dp_world_size));
    Equal("the DeepSpeed version", first_.version, other_.version);
    CompareBuffers();
    Equal("the number of flat groups in param_shapes",
          StrCat(first_.param_shapes.size()),
          StrCat(other_.param_shapes.size()));
    const size_t groups =
        std::min(first_.param_shapes.size(), other_.param_shapes.size());
    for (size_t g = 0; g < groups; ++g) {
      CompareShapes(StrCat("param_shapes of flat group ", g),
                    first_.param_shapes[g], other_.param_shapes[g]);
    }
    CompareShapes("frozen_param_shapes", first_.frozen_shapes,
                  other_.frozen_shapes);
    return std::move(errors_);
  }

 private:
  void Equal(const std::string& what, const std::string& expected,
             const std::string& found, const std::string& tensor = "") {
    if (expected == found) {
      return;
    }
    errors_.emplace_back(
        ErrorCode::kDataLoss,
        what + " differs between ranks: files of different saves are mixed",
        ErrorPlace{.file = other_.file->path(),
                   .tensor = tensor,
                   .expected = expected + " as in rank 0",
                   .found = found});
  }

  void CompareBuffers() {
    const auto render = [](const std::vector<std::string>& names) {
      return names.empty() ? std::string(kNotThere) : JoinNames(names, 5);
    };
    if (first_.buffer_names != other_.buffer_names) {
      Equal("buffer_names", render(first_.buffer_names),
            render(other_.buffer_names));
    }
  }

  // The first difference says it: the rest may follow from it.
  void CompareShapes(const std::string& what,
                     const std::vector<NamedShape>& expected,
                     const std::vector<NamedShape>& found) {
    const size_t size = std::max(expected.size(), found.size());
    for (size_t i = 0; i < size; ++i) {
      const NamedShape* a = i < expected.size() ? &expected[i] : nullptr;
      const NamedShape* b = i < found.size() ? &found[i] : nullptr;
      const bool same_name = a != nullptr && b != nullptr && a->name == b->name;
      if (same_name && a->shape == b->shape) {
        continue;
      }
      Equal(what, a == nullptr ? kNotThere : Render(*a),
            b == nullptr ? kNotThere : Render(*b),
            (a != nullptr ? a : b)->name);
      return;
    }
  }

  const ModelStates& first_;
  const ModelStates& other_;
  std::vector<Error> errors_;
};

class ShapeCheck {
 public:
  explicit ShapeCheck(const ModelStates& model) : model_(model) {}

  std::vector<Error> Run(int32_t stage) {
    for (const auto& group : model_.param_shapes) {
      for (const NamedShape& shape : group) {
        Add(shape, "param_shapes");
      }
    }
    for (const NamedShape& shape : model_.frozen_shapes) {
      Add(shape, "frozen_param_shapes");
    }
    if (stage < 3) {
      CheckTensors(model_.module, "module");
      CheckTensors(model_.frozen_fragments, "frozen_param_fragments");
    }
    return std::move(errors_);
  }

 private:
  struct Listed {
    const Shape* shape;
    const char* where;
  };

  void Fail(std::string message, const std::string& tensor,
            std::string expected = "", std::string found = "") {
    errors_.emplace_back(ErrorCode::kDataLoss, std::move(message),
                         ErrorPlace{.file = model_.file->path(),
                                    .tensor = tensor,
                                    .expected = std::move(expected),
                                    .found = std::move(found)});
  }

  void Add(const NamedShape& shape, const char* where) {
    const auto [it, added] =
        listed_.try_emplace(shape.name, Listed{&shape.shape, where});
    if (!added) {
      Fail(it->second.where == where
               ? StrCat("the parameter is listed twice in ", where)
               : "the parameter is listed twice, as trained and as frozen",
           shape.name);
    }
  }

  void CheckTensors(const std::vector<NamedTensor>& tensors,
                    const char* holder) {
    for (const NamedTensor& named : tensors) {
      const auto it = listed_.find(named.name);
      if (it == listed_.end()) {
        continue;
      }
      const Shape& found = model_.tensor(named).shape;
      if (found != *it->second.shape) {
        Fail(StrCat(holder, " and ", it->second.where,
                    " give the parameter two shapes"),
             named.name, it->second.shape->ToString(), found.ToString());
      }
    }
  }

  const ModelStates& model_;
  std::unordered_map<std::string_view, Listed> listed_;
  std::vector<Error> errors_;
};

}  // namespace

std::vector<Error> CompareModels(const ModelStates& first,
                                 const ModelStates& other) {
  return Comparison(first, other).Run();
}

std::vector<Error> CheckShapes(const ModelStates& model, int32_t stage) {
  return ShapeCheck(model).Run(stage);
}

}  // namespace muonstore::deepspeed

#include "formats/torchfile/object_builder.h"

#include <string>
#include <utility>

#include "formats/torchfile/refusal.h"
#include "formats/torchfile/tensor_rebuild.h"
#include "formats/torchfile/text_codec.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

[[noreturn]] void FailOperand(std::string message, std::string expected,
                              const Value& found) {
  throw Error(ErrorCode::kDataLoss, std::move(message),
              {.expected = std::move(expected), .found = found.Describe(60)});
}

// What a node of std::unordered_map costs.
constexpr uint64_t kMapNodeBytes = 48;

bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

bool IsSequence(const Value& value) {
  return value.is(ValueType::kTuple) || value.is(ValueType::kList);
}

uint32_t GlobalIndex(const Value& callee) {
  return static_cast<uint32_t>(callee.node().value);
}

}  // namespace

// Refuses a state that would replace __dict__, __class__, ... Entries are
// looked at once, however many objects share a state.
void ObjectBuilder::CheckStateNames(const Value& state) {
  if (!state.is(ValueType::kDict)) {
    return;
  }
  if (!checked_entries_.contains(state.id())) {
    builder_.budget().Charge(kMapNodeBytes);
  }
  size_t& checked = checked_entries_[state.id()];
  for (; checked < state.size(); ++checked) {
    const Value key = state.entry(checked).first;
    if (key.is(ValueType::kString) && IsDunder(key.AsString())) {
      ThrowRefused(StrCat("sets the attribute ", Printable(key.AsString())));
    }
  }
}

// A state is a dict, or (dict or None, slots) of a class with __slots__.
void ObjectBuilder::CheckState(const Value& state) {
  CheckStateNames(state);
  if (state.is(ValueType::kTuple) && state.size() == 2) {
    CheckStateNames(state.at(0));
    CheckStateNames(state.at(1));
  }
}

CallRule ObjectBuilder::RuleOf(uint32_t global) {
  while (rules_.size() <= global) {
    builder_.budget().PushBack(
        rules_, RuleOfCall(builder_.tree().globals[rules_.size()]));
  }
  return rules_[global];
}

NodeId ObjectBuilder::Call(NodeId callee, NodeId args,
                           Construction construction, NodeId kwargs) {
  const Value function = ValueOf(callee);
  if (function.is(ValueType::kObject)) {
    // Such as getattr(...)(...): what it is can only be known by running code.
    ThrowRefused(StrCat("calls the result of ", function.Describe(60)));
  }
  if (!function.is(ValueType::kGlobal)) {
    FailOperand("a call of something that is no class", "a global", function);
  }
  if (!ValueOf(args).is(ValueType::kTuple)) {
    FailOperand("a call with bad arguments", "a tuple", ValueOf(args));
  }
  const CallRule rule = RuleOf(GlobalIndex(function));
  if (rule == CallRule::kRefused) {
    ThrowRefused(*function.cls());
  }
  if (rule == CallRule::kUnsupportedTensor) {
    throw Error(ErrorCode::kUnsupported,
                std::string(UnsupportedTensor(*function.cls())));
  }
  const bool is_instance = construction != Construction::kReduce &&
                           rule != CallRule::kDict &&
                           rule != CallRule::kDefaultDict;
  if (rule == CallRule::kOpaque || is_instance || kwargs != kNoNode) {
    return MakeObject(callee, args, construction, kwargs);
  }
  const NodeId result = Interpret(rule, callee, args);
  if (builder_.tree().nodes[result].parts != kNoNode) {
    builder_.tree().nodes[result].construction = construction;
  }
  return result;
}

NodeId ObjectBuilder::Interpret(CallRule rule, NodeId callee, NodeId args) {
  switch (rule) {
    case CallRule::kSize:
      return MakeSize(callee, args);
    case CallRule::kDict:
      return MakeDict(callee, args);
    case CallRule::kDefaultDict:
      return MakeDefaultDict(callee, args);
    case CallRule::kSet:
    case CallRule::kFrozenSet:
      return MakeSet(rule, callee, args);
    case CallRule::kBytes:
    case CallRule::kEncode:
      return MakeBytes(rule, callee, args);
    case CallRule::kRebuildFromType:
      return MakeFromType(callee, args);
    default:
      return MakeTensor(rule, callee, args);
  }
}

void ObjectBuilder::SetParts(NodeId id, NodeId callee, NodeId args) {
  builder_.SetClass(id, GlobalIndex(ValueOf(callee)), Construction::kReduce);
  if (ValueOf(args).size() != 0) {
    builder_.OwnParts(id).args = args;
  }
}

NodeId ObjectBuilder::MakeObject(NodeId callee, NodeId args,
                                 Construction construction, NodeId kwargs) {
  const NodeId id = builder_.Container(ValueType::kObject);
  SetParts(id, callee, args);
  builder_.tree().nodes[id].construction = construction;
  if (kwargs != kNoNode) {
    builder_.OwnParts(id).kwargs = kwargs;
  }
  return id;
}

NodeId ObjectBuilder::MakeTensor(CallRule rule, NodeId callee, NodeId args) {
  const NodeId id = builder_.Tensor(RebuildTensor(rule, ValueOf(args)));
  SetParts(id, callee, args);
  return id;
}

// The inner call of a tensor with attributes must give a tensor, and must not
// nest: the depth of our own calls stays bounded.
void ObjectBuilder::RequireRebuild(const Value& function) {
  if (!function.is(ValueType::kGlobal)) {
    FailOperand("a tensor with attributes is malformed", "a function",
                function);
  }
  const CallRule rule = RuleOf(GlobalIndex(function));
  const bool throws =
      rule == CallRule::kRefused || rule == CallRule::kUnsupportedTensor;
  if (!IsRebuild(rule) && !throws) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("a tensor that is rebuilt by ",
                       Printable(function.cls()->ToString())));
  }
}

// _rebuild_from_type_v2(function, type, args, state): function(*args) with
// Python attributes, or as a subclass, whose extra behaviour is dropped.
NodeId ObjectBuilder::MakeFromType(NodeId callee, NodeId args) {
  const Value call = ValueOf(args);
  if (call.size() != 4 || !call.at(1).is(ValueType::kGlobal)) {
    FailOperand("a tensor with attributes is malformed",
                "(function, type, args, state)", call);
  }
  CheckState(call.at(3));
  RequireRebuild(call.at(0));
  const NodeId inner =
      Call(call.at(0).id(), call.at(2).id(), Construction::kReduce);
  TensorInfo tensor = ValueOf(inner).AsTensor();
  tensor.is_parameter |= call.at(1).cls()->name == "Parameter";
  tensor.attributes = AttributesOf(call.at(3));
  const NodeId id = builder_.Tensor(std::move(tensor));
  SetParts(id, callee, args);
  return id;
}

NodeId ObjectBuilder::MakeSize(NodeId callee, NodeId args) {
  const Value call = ValueOf(args);
  if (call.size() != 1 || !IsSequence(call.at(0))) {
    FailOperand("torch.Size is malformed", "a tuple of ints", call);
  }
  const NodeId id = builder_.TupleOf(call.at(0).id());
  builder_.SetClass(id, GlobalIndex(ValueOf(callee)), Construction::kReduce);
  return id;
}

// The items move from the argument into the dict, so that a writer finds them
// in one place: Python 2 wrote OrderedDict([[key, value], ...]).
NodeId ObjectBuilder::MakeDict(NodeId callee, NodeId args) {
  const NodeId id = builder_.Container(ValueType::kDict);
  builder_.SetClass(id, GlobalIndex(ValueOf(callee)), Construction::kReduce);
  const Value call = ValueOf(args);
  if (call.size() > 1) {
    FailOperand("a dict is malformed", "at most one argument", call);
  }
  if (call.size() == 1 && call.at(0).is(ValueType::kDict)) {
    builder_.AppendItems(id, builder_.tree().Items(call.at(0).id()));
  } else if (call.size() == 1) {
    AppendPairs(id, call.at(0));
  }
  return id;
}

void ObjectBuilder::AppendPairs(NodeId dict, const Value& pairs) {
  if (!IsSequence(pairs)) {
    FailOperand("a dict is malformed", "a list of pairs", pairs);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Value pair = pairs.at(i);
    if (!IsSequence(pair) || pair.size() != 2) {
      FailOperand("a dict is malformed", "a key and a value", pair);
    }
    builder_.AppendItems(dict, builder_.tree().Items(pair.id()));
  }
}

NodeId ObjectBuilder::MakeDefaultDict(NodeId callee, NodeId args) {
  if (ValueOf(args).size() > 1) {
    return MakeObject(callee, args, Construction::kReduce, kNoNode);
  }
  const NodeId id = builder_.Container(ValueType::kDict);
  SetParts(id, callee, args);
  return id;
}

NodeId ObjectBuilder::MakeSet(CallRule rule, NodeId callee, NodeId args) {
  const Value call = ValueOf(args);
  if (call.size() > 1 || (call.size() == 1 && !IsSequence(call.at(0)))) {
    FailOperand("a set is malformed", "a list of items", call);
  }
  const NodeId id = builder_.Container(ValueType::kSet);
  if (rule == CallRule::kFrozenSet) {
    builder_.SetClass(id, GlobalIndex(ValueOf(callee)), Construction::kReduce);
  }
  if (call.size() == 1) {
    builder_.AppendItems(id, builder_.tree().Items(call.at(0).id()));
  }
  return id;
}

NodeId ObjectBuilder::MakeBytes(CallRule rule, NodeId callee, NodeId args) {
  const Value call = ValueOf(args);
  if (rule == CallRule::kBytes && call.size() == 0) {
    return builder_.Text(ValueType::kBytes, {});
  }
  const bool is_latin1 = rule == CallRule::kEncode && call.size() == 2 &&
                         call.at(0).is(ValueType::kString) &&
                         call.at(1).is(ValueType::kString) &&
                         call.at(1).AsString() == "latin1";
  if (is_latin1) {
    builder_.budget().ChargeText(call.at(0).AsString().size());
    if (auto bytes = EncodeLatin1(call.at(0).AsString())) {
      return builder_.Text(ValueType::kBytes, *std::move(bytes));
    }
  }
  return MakeObject(callee, args, Construction::kReduce, kNoNode);
}

void ObjectBuilder::Build(NodeId object, NodeId state) {
  const Value target = ValueOf(object);
  if (target.is(ValueType::kGlobal)) {
    ThrowRefused(
        StrCat("changes ", Printable(target.cls()->ToString()), " itself"));
  }
  if (target.is(ValueType::kTensor) || target.is(ValueType::kStorage)) {
    throw Error(ErrorCode::kUnsupported,
                "a tensor whose state is set by BUILD");
  }
  if (target.cls() == nullptr) {
    FailOperand("BUILD needs an object", "an instance of a class", target);
  }
  if (target.state().has_value()) {
    FailOperand("BUILD is applied twice", "an object without state", target);
  }
  CheckState(ValueOf(state));
  builder_.OwnParts(object).state = state;
}

void ObjectBuilder::Append(NodeId object, std::span<const NodeId> items) {
  const Value target = ValueOf(object);
  if (target.is(ValueType::kList)) {
    builder_.AppendItems(object, items);
  } else if (target.is(ValueType::kObject)) {
    builder_.AppendListItems(object, items);
  } else {
    FailOperand("APPEND needs a list", "a list", target);
  }
}

void ObjectBuilder::SetItems(NodeId object, std::span<const NodeId> items) {
  const Value target = ValueOf(object);
  if (!target.is(ValueType::kDict) && !target.is(ValueType::kObject)) {
    FailOperand("SETITEMS needs a dict", "a dict", target);
  }
  if (items.size() % 2 != 0) {
    FailOperand("SETITEMS has a key without a value", "an even count",
                ValueOf(items.back()));
  }
  builder_.AppendItems(object, items);
}

void ObjectBuilder::AddItems(NodeId object, std::span<const NodeId> items) {
  const Value target = ValueOf(object);
  if (!target.is(ValueType::kSet) || target.cls() != nullptr) {
    FailOperand("ADDITEMS needs a set", "a set", target);
  }
  builder_.AppendItems(object, items);
}

NodeId ObjectBuilder::Persistent(NodeId id) {
  if (storages_ == nullptr) {
    FailOperand("a persistent id where no storage can be", "a plain value",
                ValueOf(id));
  }
  return storages_->Load(id);
}

}  // namespace muonstore::torchfile

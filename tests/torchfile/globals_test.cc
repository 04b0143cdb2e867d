// What may be called, what stays opaque, what is refused.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/globals_policy.h"
#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

using pickle::Call;
using pickle::GlobalName;
using pickle::Str;

std::shared_ptr<const TorchFile> OpenBody(const std::string& body) {
  return OpenBytes(TorchZip(pickle::Whole(body)));
}

const std::vector<Global>& RefusedGlobals() {
  static const std::vector<Global> globals = {
      {"os", "system"},
      {"posix", "system"},
      {"nt", "system"},
      {"subprocess", "Popen"},
      {"commands", "getoutput"},
      {"builtins", "eval"},
      {"builtins", "exec"},
      {"builtins", "getattr"},
      {"__builtin__", "__import__"},
      {"__builtin__", "apply"},
      {"copyreg", "_reconstructor"},
      {"copy_reg", "_reconstructor"},
      {"importlib", "import_module"},
      {"importlib.util", "spec_from_loader"},
      {"runpy", "_run_code"},
      {"code", "InteractiveInterpreter"},
      {"types", "FunctionType"},
      {"types", "CodeType"},
      {"functools", "partial"},
      {"operator", "attrgetter"},
      {"ctypes", "CDLL"},
      {"socket", "socket"},
      {"webbrowser", "open"},
      {"pickle", "loads"},
      {"marshal", "loads"},
      {"shutil", "rmtree"},
      {"logging.config", "_resolve"},
      {"pathlib", "os.system"},
      {"collections", "_sys.modules"},
      {"collections", "namedtuple"},
      {"torch", "load"},
      {"torch", "os.system"},
      {"torch", "Tensor.os"},
      {"torch.hub", "load"},
      {"torch.jit", "load"},
      {"torch.storage", "_load_from_bytes"},
      {"torch.fx.graph_module", "reduce_graph_module"},
      {"torch._utils", "_import_dotted_name"},
      {"numpy", "load"},
      {"numpy.testing._private.utils", "runstring"},
      {"numpy.f2py.crackfortran", "getlincoef"},
      {"cloudpickle.cloudpickle", "_make_function"},
      {"dill._dill", "_create_function"},
      {"joblib", "load"},
      {"some_package", "Class.method"},
      {"some_package", "os.system"},
  };
  return globals;
}

TEST(Globals, CallsOfCodeAreRefusedInEveryForm) {
  for (const Global& global : RefusedGlobals()) {
    SCOPED_TRACE(global.ToString());
    EXPECT_EQ(RuleOfCall(global), CallRule::kRefused);
    const std::string name = GlobalName(global.module, global.name);
    const std::vector<std::string> forms = {
        name + "(N" + "tR",  // REDUCE
        name + "(Nt\x81",    // NEWOBJ
        name + "(Nt}\x92",   // NEWOBJ_EX
        "(" + name + "No",   // OBJ
        "(Ni" + global.module + "\n" + global.name + "\n",
        Str(global.module) + Str(global.name) + "\x93(NtR",
    };
    for (const std::string& form : forms) {
      EXPECT_ERROR(OpenBody(form), ErrorCode::kUnsupported,
                   "refused: the pickle calls " + global.ToString());
    }
  }
}

TEST(Globals, NamingWithoutCallingIsFine) {
  for (const Global& global : RefusedGlobals()) {
    const auto file = OpenBody(GlobalName(global.module, global.name));
    EXPECT_EQ(*file->root().cls(), global);
    EXPECT_TRUE(file->root().is(ValueType::kGlobal));
  }
}

TEST(Globals, ChangingAGlobalIsRefused) {
  EXPECT_ERROR(OpenBody(GlobalName("m", "C") + "}b"), ErrorCode::kUnsupported,
               "changes m.C itself");
}

TEST(Globals, CallingAResultIsRefused) {
  EXPECT_ERROR(OpenBody(Call(Call(GlobalName("m", "C"), {}), {})),
               ErrorCode::kUnsupported, "calls the result of");
}

TEST(Globals, DunderAttributesAreRefused) {
  const std::string object = GlobalName("m", "C") + ")\x81";
  for (const char* name : {"__dict__", "__class__", "__init__", "__reduce__"}) {
    const std::string state = pickle::Dict({{"ok", "N"}, {name, "N"}});
    EXPECT_ERROR(OpenBody(object + state + "b"), ErrorCode::kUnsupported, name);
    EXPECT_ERROR(OpenBody(object + "(N" + state + "tb"),
                 ErrorCode::kUnsupported, name);
    EXPECT_ERROR(OpenBody(pickle::OrderedDict() + state + "b"),
                 ErrorCode::kUnsupported, name);
  }
  // Names that only look like it.
  for (const char* name : {"_private", "__x", "x__", "____"}) {
    EXPECT_TRUE(OpenBody(object + pickle::Dict({{name, "K\x01"}}) + "b")
                    ->root()
                    .Attribute(name)
                    .has_value());
  }
}

TEST(Globals, SharedStatesAreCheckedWhenTheyGrow) {
  // The second BUILD sees an entry that the first one did not.
  const std::string object = GlobalName("m", "C") + ")\x81";
  EXPECT_ERROR(OpenBody("(" + object + "}q\x01" + "b" + object + "h\x01" +
                        Str("__dict__") + "Ns" + "bt"),
               ErrorCode::kUnsupported, "__dict__");
}

TEST(Globals, ClassesOfOthersStayOpaque) {
  const std::vector<Global> globals = {
      {"deepspeed.runtime.fp16.loss_scaler", "LossScaler"},
      {"deepspeed.runtime.zero.config", "ZeroStageEnum"},
      {"deepspeed.utils.tensor_fragment", "fragment_address"},
      {"fixture_custom_mod", "CustomState"},
      {"fixture_custom_mod", "Outer.Inner"},
      {"torch.nn.modules.linear", "Linear"},
      {"torch.optim.lr_scheduler", "LambdaLR"},
      {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
      {"torch", "device"},
      {"torch.serialization", "_get_layout"},
      {"numpy", "dtype"},
      {"numpy.core.multiarray", "scalar"},
      {"numpy._core.multiarray", "_reconstruct"},
      {"numpy.random._pickle", "__randomstate_ctor"},
      {"numpy.random._mt19937", "MT19937"},
      {"datetime", "datetime"},
      {"decimal", "Decimal"},
      {"fractions", "Fraction"},
      {"uuid", "UUID"},
      {"pathlib", "PosixPath"},
      {"pathlib._local", "PosixPath"},
      {"argparse", "Namespace"},
      {"types", "SimpleNamespace"},
      {"collections", "deque"},
      {"__builtin__", "complex"},
      {"builtins", "bytearray"},
      {"builtins", "range"},
      {"builtins", "slice"},
  };
  for (const Global& global : globals) {
    SCOPED_TRACE(global.ToString());
    const auto file =
        OpenBody(Call(GlobalName(global.module, global.name), {"K\x05"}));
    EXPECT_TRUE(file->root().is(ValueType::kObject));
    EXPECT_EQ(*file->root().cls(), global);
    EXPECT_EQ(file->root().arg(0)->AsInt(), 5);
  }
}

TEST(Globals, TensorsThatAreNotDenseAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"_rebuild_sparse_tensor", "a sparse tensor"},
      {"_rebuild_sparse_csr_tensor", "a sparse tensor"},
      {"_rebuild_qtensor", "a quantized tensor"},
      {"_rebuild_meta_tensor_no_storage", "meta device"},
      {"_rebuild_nested_tensor", "a nested tensor"},
      {"_rebuild_wrapper_subclass", "wraps other tensors"},
      {"_rebuild_device_tensor_from_numpy", "device tensor"},
      {"_rebuild_device_tensor_from_cpu_tensor", "device tensor"},
      {"_rebuild_xla_tensor", "XLA"},
  };
  for (const auto& [name, text] : cases) {
    const std::string callee = GlobalName("torch._utils", name);
    EXPECT_ERROR(OpenBody(Call(callee, {})), ErrorCode::kUnsupported, text);
    EXPECT_ERROR(
        OpenBody(Call(GlobalName("torch._tensor", "_rebuild_from_type_v2"),
                      {callee, GlobalName("torch", "Tensor"), ")", "}"})),
        ErrorCode::kUnsupported, text);
  }
}

TEST(Globals, KnownContainers) {
  const std::string pairs = "](" + pickle::Tuple({Str("a"), "K\x01"}) + "](" +
                            Str("b") + "K\x02" + "ee";
  const auto file =
      OpenBody("(" + Call(GlobalName("collections", "OrderedDict"), {pairs}) +
               Call(GlobalName("collections", "Counter"),
                    {pickle::Dict({{"x", "K\x03"}})}) +
               Call(GlobalName("collections", "defaultdict"),
                    {GlobalName("builtins", "list")}) +
               Str("k") + "K\x04s" +
               Call(GlobalName("__builtin__", "set"), {"](K\x05K\x06"
                                                       "e"}) +
               Call(GlobalName("builtins", "frozenset"), {"](K\x07"
                                                          "e"}) +
               Call(GlobalName("torch", "Size"), {"(K\x02K\x03t"}) +
               Call(GlobalName("torch", "Size"), {")"}) + "t");
  const Value root = file->root();
  EXPECT_EQ(root.at(0).Get("a").AsInt(), 1);
  EXPECT_EQ(root.at(0).Get("b").AsInt(), 2);
  EXPECT_EQ(root.at(1).Get("x").AsInt(), 3);
  EXPECT_EQ(root.at(1).cls()->name, "Counter");
  EXPECT_EQ(root.at(2).Get("k").AsInt(), 4);
  EXPECT_EQ(root.at(2).arg(0)->cls()->name, "list");
  EXPECT_EQ(root.at(3).Describe(), "set {5, 6}");
  EXPECT_EQ(root.at(3).cls(), nullptr);
  EXPECT_EQ(root.at(4).cls()->name, "frozenset");
  EXPECT_EQ(root.at(5).Describe(), "tuple (2, 3)");
  EXPECT_EQ(root.at(5).cls()->name, "Size");
  EXPECT_EQ(root.at(6).size(), 0u);
  EXPECT_EQ(root.at(6).cls()->name, "Size");
}

TEST(Globals, MalformedContainers) {
  const std::string od = GlobalName("collections", "OrderedDict");
  EXPECT_ERROR(OpenBody(Call(od, {"K\x01"})), ErrorCode::kDataLoss, "pairs");
  EXPECT_ERROR(OpenBody(Call(od, {"](K\x01"
                                  "e"})),
               ErrorCode::kDataLoss, "a key and a value");
  EXPECT_ERROR(OpenBody(Call(od, {"N", "N"})), ErrorCode::kDataLoss,
               "at most one");
  EXPECT_ERROR(OpenBody(Call(GlobalName("builtins", "set"), {"K\x01"})),
               ErrorCode::kDataLoss, "set");
  EXPECT_ERROR(OpenBody(Call(GlobalName("torch", "Size"), {"K\x01"})),
               ErrorCode::kDataLoss, "torch.Size");
}

TEST(Globals, BytesOfProtocol2) {
  const std::string encode = GlobalName("_codecs", "encode");
  const auto file =
      OpenBody("(" + Call(encode, {Str("a\u00ff\u0080"), Str("latin1")}) +
               Call(GlobalName("__builtin__", "bytes"), {}) +
               Call(encode, {Str("\u0100"), Str("latin1")}) +
               Call(encode, {Str("x"), Str("utf-8")}) + "t");
  EXPECT_EQ(file->root().at(0).AsBytes(), "a\xff\x80");
  EXPECT_EQ(file->root().at(1).AsBytes(), "");
  EXPECT_TRUE(file->root().at(2).is(ValueType::kObject));
  EXPECT_TRUE(file->root().at(3).is(ValueType::kObject));
}

}  // namespace
}  // namespace muonstore::torchfile

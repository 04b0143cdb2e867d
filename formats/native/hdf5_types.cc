#include "formats/native/hdf5_types.h"

#include "formats/native/text.h"

namespace muonstore::native {
namespace {

Handle Copy(hid_t type) { return {H5Tcopy(type), H5Tclose, "copy a type"}; }

// Sign, exponent, mantissa from the highest bit down; 16 bits.
Handle HalfFloat(size_t exponent_bits) {
  constexpr size_t kSignBit = 15;
  const size_t mantissa_bits = kSignBit - exponent_bits;
  Handle type = Copy(H5T_IEEE_F32LE);
  Check(H5Tset_fields(type.get(), kSignBit, mantissa_bits, exponent_bits, 0,
                      mantissa_bits),
        "set the fields of a float");
  Check(H5Tset_size(type.get(), 2), "set the size of a float");
  Check(H5Tset_ebias(type.get(), (size_t{1} << (exponent_bits - 1)) - 1),
        "set the bias of a float");
  return type;
}

Handle Bool() {
  Handle type(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "make an enumeration");
  for (const auto& [name, value] :
       {std::pair("FALSE", int8_t{0}), std::pair("TRUE", int8_t{1})}) {
    Check(H5Tenum_insert(type.get(), name, &value), "fill an enumeration");
  }
  return type;
}

Handle Complex(const Handle& part) {
  const size_t part_bytes = H5Tget_size(part.get());
  Handle type(H5Tcreate(H5T_COMPOUND, 2 * part_bytes), H5Tclose,
              "make a compound");
  Check(H5Tinsert(type.get(), "r", 0, part.get()), "fill a compound");
  Check(H5Tinsert(type.get(), "i", part_bytes, part.get()), "fill a compound");
  return type;
}

}  // namespace

Handle Hdf5Type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return Copy(H5T_IEEE_F64LE);
    case DType::kF32:
      return Copy(H5T_IEEE_F32LE);
    case DType::kF16:
      return HalfFloat(5);
    case DType::kBF16:
      return HalfFloat(8);
    case DType::kI64:
      return Copy(H5T_STD_I64LE);
    case DType::kI32:
      return Copy(H5T_STD_I32LE);
    case DType::kI16:
      return Copy(H5T_STD_I16LE);
    case DType::kI8:
      return Copy(H5T_STD_I8LE);
    case DType::kU64:
      return Copy(H5T_STD_U64LE);
    case DType::kU32:
      return Copy(H5T_STD_U32LE);
    case DType::kU16:
      return Copy(H5T_STD_U16LE);
    case DType::kBool:
      return Bool();
    case DType::kC128:
      return Complex(Copy(H5T_IEEE_F64LE));
    case DType::kC64:
      return Complex(Copy(H5T_IEEE_F32LE));
    case DType::kC32:
      return Complex(HalfFloat(5));
    default:  // u8, and what has no HDF5 type.
      return Copy(H5T_STD_U8LE);
  }
}

Handle DatasetProperties() {
  Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make properties");
  Check(H5Pset_obj_track_times(properties.get(), 0), "leave out times");
  return properties;
}

Handle GroupIn(const Handle& parent, const std::string& name) {
  if (H5Lexists(parent.get(), name.c_str(), H5P_DEFAULT) > 0) {
    return {H5Gopen2(parent.get(), name.c_str(), H5P_DEFAULT), H5Gclose,
            "open a group"};
  }
  const Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose,
                          "make properties");
  Check(H5Pset_obj_track_times(properties.get(), 0), "leave out times");
  return {H5Gcreate2(parent.get(), name.c_str(), LinkProperties().get(),
                     properties.get(), H5P_DEFAULT),
          H5Gclose, "make a group"};
}

Handle LinkProperties() {
  Handle properties(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "make properties");
  Check(H5Pset_char_encoding(properties.get(), H5T_CSET_UTF8), "use UTF-8");
  return properties;
}

void WriteAttribute(hid_t object, const char* name, int64_t value) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, "make a space");
  const Handle attribute(H5Acreate2(object, name, H5T_STD_I64LE, space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, "make an attribute");
  Check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value),
        "write an attribute");
}

void WriteAttribute(hid_t object, const char* name, std::string_view value) {
  const bool text = IsPlainText(value);
  const hsize_t size = value.size();
  const Handle type = text ? Copy(H5T_C_S1) : Copy(H5T_STD_U8LE);
  if (text) {
    Check(H5Tset_size(type.get(), value.size()), "size a string");
    Check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "use UTF-8");
    Check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "pad a string");
  }
  const Handle space(
      text ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &size, nullptr),
      H5Sclose, "make a space");
  const std::string full = text ? name : std::string(name) + "_bytes";
  const Handle attribute(H5Acreate2(object, full.c_str(), type.get(),
                                    space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, "make an attribute");
  if (size > 0) {
    Check(H5Awrite(attribute.get(), type.get(), value.data()),
          "write an attribute");
  }
}

}  // namespace muonstore::native

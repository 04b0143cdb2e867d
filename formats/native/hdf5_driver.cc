#include "formats/native/hdf5_driver.h"

#include <algorithm>
#include <exception>
#include <memory>

namespace muonstore::native {
namespace {

// libhdf5 knows it by its first member.
struct File {
  H5FD_t base;
  Hdf5Image* image;
  haddr_t end_of_addresses;
};

// What the file access properties carry to Open().
struct FileProperties {
  Hdf5Image* image;
};

File& AsFile(H5FD_t* file) { return *reinterpret_cast<File*>(file); }
const File& AsFile(const H5FD_t* file) {
  return *reinterpret_cast<const File*>(file);
}

H5FD_t* Open(const char* /*name*/, unsigned /*flags*/, hid_t properties,
             haddr_t /*max_address*/) {
  const auto* info =
      static_cast<const FileProperties*>(H5Pget_driver_info(properties));
  try {
    auto file = std::make_unique<File>();
    file->image = info->image;
    return &file.release()->base;
  } catch (const std::exception&) {
    return nullptr;  // No memory; nothing may be thrown through libhdf5.
  }
}

herr_t Close(H5FD_t* base) {
  const std::unique_ptr<File> file(&AsFile(base));
  file->image->set_size_bytes(file->end_of_addresses);
  return 0;
}

int Compare(const H5FD_t* a, const H5FD_t* b) {
  const auto* first = AsFile(a).image;
  const auto* second = AsFile(b).image;
  return first == second ? 0 : (std::less<>()(first, second) ? -1 : 1);
}

herr_t Query(const H5FD_t* /*file*/, unsigned long* flags) {
  // No aggregation: each request for space comes here by itself.
  *flags = H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t Allocate(H5FD_t* base, H5FD_mem_t type, hid_t /*transfer*/,
                 hsize_t size) {
  File& file = AsFile(base);
  uint64_t address = 0;
  if (type == H5FD_MEM_DRAW && file.image->TakeRaw(size, address)) {
    return address;
  }
  // The superblock lies at 0; everything else behind the payload.
  address = file.end_of_addresses;
  if (address > 0) {
    address = std::max<haddr_t>(address, file.image->payload_end());
  }
  file.end_of_addresses = address + size;
  return address;
}

haddr_t GetEndOfAddresses(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return AsFile(file).end_of_addresses;
}

herr_t SetEndOfAddresses(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t address) {
  AsFile(file).end_of_addresses = address;
  return 0;
}

haddr_t GetEndOfFile(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return AsFile(file).end_of_addresses;
}

herr_t Read(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/,
            haddr_t address, size_t size, void* buffer) {
  AsFile(file).image->Read(address,
                           std::span(static_cast<std::byte*>(buffer), size));
  return 0;
}

herr_t Write(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/,
             haddr_t address, size_t size, const void* buffer) {
  try {
    AsFile(file).image->Write(
        address, std::span(static_cast<const std::byte*>(buffer), size));
    return 0;
  } catch (const std::exception&) {
    return -1;  // As in Open().
  }
}

H5FD_class_t DriverClass() {
  H5FD_class_t driver{};
  driver.name = "muonstore_image";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(FileProperties);
  driver.open = Open;
  driver.close = Close;
  driver.cmp = Compare;
  driver.query = Query;
  driver.alloc = Allocate;
  driver.get_eoa = GetEndOfAddresses;
  driver.set_eoa = SetEndOfAddresses;
  driver.get_eof = GetEndOfFile;
  driver.read = Read;
  driver.write = Write;
  // Raw data and metadata never share freed space.
  constexpr H5FD_mem_t kSeparate[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kSeparate), std::end(kSeparate), driver.fl_map);
  return driver;
}

Handle Register() {
  const H5FD_class_t driver = DriverClass();
  return {H5FDregister(&driver), H5FDunregister, "register a driver"};
}

Handle CreateFile(const Handle& driver, Hdf5Image& image) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  const FileProperties properties{&image};
  Check(H5Pset_driver(access.get(), driver.get(), &properties), "set a driver");
  // As old as they can be with groups of any size: every tool reads them.
  Check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST),
        "set the format's version");
  const Handle create(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "make properties");
  Check(H5Pset_obj_track_times(create.get(), 0), "leave out times");
  return {H5Fcreate("image", H5F_ACC_TRUNC, create.get(), access.get()),
          H5Fclose, "create a file"};
}

}  // namespace

ImageFile::ImageFile(Hdf5Image& image)
    : driver_(Register()), file_(CreateFile(driver_, image)) {}

}  // namespace muonstore::native

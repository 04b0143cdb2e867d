"""Writes files as torch.save does, without torch.

The container is torch 2.15's, byte for byte: STORED records, data descriptors,
64-byte alignment by an "FB" extra field, ZIP64 end records always. The pickle
is protocol 2 with the globals and persistent ids of torch. Payloads of zeros
are left as holes, so that a file of many gigabytes takes no disk.

    storage = Storage("BFloat16Storage", Zeros(2 * 10**9))
    save("big.pt", {"w": Tensor(storage, 0, (1000, 1000))})

Only a process that does not import torch may use this: the pickler resolves
names in stub modules.
"""
import array
import io
import pickle
import struct
import sys
import types
import zlib
from collections import OrderedDict

ALIGNMENT = 64
UINT32_MAX = 0xFFFFFFFF


class Zeros:
    """A payload of zero bytes that is never held in memory."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes

    def __len__(self):
        return self.num_bytes


class Counting:
    """A payload that is never held in memory: 32-bit words that count up from
    the float32 1.1e-19, so that no two of 2**29 elements are equal."""
    _FIRST = 0x20000000
    _BLOCK_WORDS = 1 << 20

    def __init__(self, num_bytes, first=0):
        self.num_bytes = num_bytes
        self.first = first

    def __len__(self):
        return self.num_bytes

    def blocks(self):
        words, at = -(-self.num_bytes // 4), self._FIRST + self.first
        for begin in range(0, words, self._BLOCK_WORDS):
            end = min(begin + self._BLOCK_WORDS, words)
            block = array.array("I", range(at + begin, at + end)).tobytes()
            yield block[:self.num_bytes - 4 * begin]


# CRC-32 of zeros: appending 2**k zero bytes is a linear map on the register,
# held here as the images of its 32 bits.
def _apply(matrix, vector):
    total = 0
    for image in matrix:
        if vector & 1:
            total ^= image
        vector >>= 1
    return total


def _step_one_byte(register):
    for _ in range(8):
        register = (register >> 1) ^ (0xEDB88320 if register & 1 else 0)
    return register


def _zero_byte_maps():
    maps = [[_step_one_byte(1 << bit) for bit in range(32)]]
    while len(maps) < 64:
        maps.append([_apply(maps[-1], image) for image in maps[-1]])
    return maps


_ZERO_BYTE_MAPS = _zero_byte_maps()


def crc32_of_zeros(num_bytes):
    register = UINT32_MAX
    for k, zero_bytes in enumerate(_ZERO_BYTE_MAPS):
        if num_bytes >> k & 1:
            register = _apply(zero_bytes, register)
    return register ^ UINT32_MAX


def _crc32(payload):
    if isinstance(payload, Zeros):
        return crc32_of_zeros(len(payload))
    crc = 0
    for block in _blocks(payload):
        crc = zlib.crc32(block, crc)
    return crc


def _blocks(payload):
    return payload.blocks() if isinstance(payload, Counting) else [payload]


def _zip64_extra(values):
    if not values:
        return b""
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)


def _local_zip64(size, at):
    # The compressed size is not known yet when torch writes this.
    sizes = [size, 0] if size >= UINT32_MAX else []
    return _zip64_extra(sizes + [at] * (at >= UINT32_MAX))


def _central_zip64(size, at):
    return _zip64_extra([v for v in (size, size, at) if v >= UINT32_MAX])


class TorchZip:
    """One container; records in the order in which they are added."""

    def __init__(self, path, root):
        self._file = open(path, "wb")
        self._root = root
        self._central = io.BytesIO()
        self._num_records = 0
        self._at = 0

    def _write(self, data):
        if isinstance(data, Zeros):
            self._file.seek(len(data), io.SEEK_CUR)
        else:
            for block in _blocks(data):
                self._file.write(block)
        self._at += len(data)

    def add(self, name, payload):
        name = f"{self._root}/{name}".encode()
        size, at, crc = len(payload), self._at, _crc32(payload)
        flags = 0x0808 if size else 0x0800  # Descriptor only behind data.
        extra = _local_zip64(size, at)
        start = at + 30 + len(name) + len(extra) + 4
        padding = -start % ALIGNMENT
        extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
        self._write(struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, flags, 0, 0, 0,
                                0, 0, 0, len(name), len(extra)))
        self._write(name + extra)
        self._write(payload)
        if size:
            zip64 = size >= UINT32_MAX or at >= UINT32_MAX
            form = "<IIQQ" if zip64 else "<IIII"
            self._write(struct.pack(form, 0x08074B50, crc, size, size))
        self._add_central(name, flags, crc, size, at)

    def _add_central(self, name, flags, crc, size, at):
        extra = _central_zip64(size, at)
        self._central.write(struct.pack(
            "<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 0, flags, 0, 0, 0, crc,
            min(size, UINT32_MAX), min(size, UINT32_MAX), len(name),
            len(extra), 0, 0, 0, 0, min(at, UINT32_MAX)))
        self._central.write(name + extra)
        self._num_records += 1

    def close(self):
        at, size, n = self._at, self._central.tell(), self._num_records
        self._write(self._central.getvalue())
        end = self._at
        self._write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x031E, 0x2D,
                                0, 0, n, n, size, at))
        self._write(struct.pack("<IIQI", 0x07064B50, 0, end, 1))
        self._write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0,
                                min(n, 0xFFFF), min(n, 0xFFFF),
                                min(size, UINT32_MAX), min(at, UINT32_MAX), 0))
        self._file.close()


def write_container(path, pickled, storages, serialization_id="0" * 40):
    """A torch.save file of a pickle and the payloads of its storages."""
    root = str(path).rsplit("/", 1)[-1].removesuffix(".pt")
    container = TorchZip(path, root)
    container.add("data.pkl", pickled)
    container.add(".format_version", b"1")
    container.add(".storage_alignment", b"64")
    container.add("byteorder", b"little")
    for key, payload in enumerate(storages):
        container.add(f"data/{key}", payload)
    container.add("version", b"3\n")
    container.add(".data/serialization_id", serialization_id.encode())
    container.close()


# ------------------------------------------------------------------ the pickle
def _stub(module, name, value):
    """`value` as what a pickle calls `module.name`."""
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        prefix = ".".join(parts[:i])
        sys.modules.setdefault(prefix, types.ModuleType(prefix))
    setattr(sys.modules[module], name, value)
    value.__module__, value.__qualname__, value.__name__ = module, name, name
    return value


def _stub_function(module, name):
    return _stub(module, name, lambda *args: None)


def _stub_class(module, name):
    return _stub(module, name, type(name, (), {}))


BYTES_PER_ELEMENT = {"BFloat16Storage": 2, "HalfStorage": 2, "FloatStorage": 4,
                     "DoubleStorage": 8, "LongStorage": 8, "BoolStorage": 1}
_STORAGES = {name: _stub_class("torch", name) for name in BYTES_PER_ELEMENT}
_TENSOR = _stub_class("torch", "Tensor")
_REBUILD = _stub_function("torch._utils", "_rebuild_tensor_v2")
_REBUILD_TYPED = _stub_function("torch._tensor", "_rebuild_from_type_v2")
LossScaler = _stub_class("deepspeed.runtime.fp16.loss_scaler", "LossScaler")
FragmentAddress = _stub_class("deepspeed.utils.tensor_fragment",
                              "fragment_address")


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


_stub("torch", "Size", Size)


class ZeroStage:
    def __init__(self, stage):
        self.stage = stage

    def __reduce__(self):
        return ZeroStage, (self.stage,)


_stub("deepspeed.runtime.zero.config", "ZeroStageEnum", ZeroStage)


def with_attributes(cls, **attributes):
    """An object whose pickle is NEWOBJ and BUILD with these attributes."""
    value = cls()
    value.__dict__.update(attributes)
    return value


class Storage:
    """`payload` is bytes, Zeros or Counting; its class name is torch's."""

    def __init__(self, class_name, payload):
        self.class_name = class_name
        self.payload = payload

    @property
    def num_elements(self):
        return len(self.payload) // BYTES_PER_ELEMENT[self.class_name]


class Tensor:
    """A contiguous view; `attributes` are Python attributes, or None."""

    def __init__(self, storage, offset, shape, requires_grad=False,
                 attributes=None):
        self.storage = storage
        self.offset = offset
        self.shape = tuple(shape)
        self.requires_grad = requires_grad
        self.attributes = attributes

    def _strides(self):
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.append(step)
            step *= max(size, 1)
        return tuple(reversed(strides))

    def __reduce__(self):
        args = (self.storage, self.offset, self.shape, self._strides(),
                self.requires_grad, OrderedDict())
        if self.attributes is None:
            return _REBUILD, args
        return _REBUILD_TYPED, (_REBUILD, _TENSOR, args, self.attributes)


class _Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []
        self._keys = {}

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        key = self._keys.get(id(value))
        if key is None:
            key = self._keys[id(value)] = str(len(self.storages))
            self.storages.append(value)
        return ("storage", _STORAGES[value.class_name], key, "cpu",
                value.num_elements)


def save(path, value):
    """Like torch.save(value, path), for the classes above."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled)
    pickler.dump(value)
    write_container(path, pickled.getvalue(),
                    [storage.payload for storage in pickler.storages])

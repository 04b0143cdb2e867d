"""What goes wrong, as exceptions.

Every failure of the library is a `muonstore.Error`; its class says which kind.
"""


class Error(Exception):
    """A failure, with the words of the C++ library.

    code: "InvalidArgument", "NotFound", "DataLoss", "Unsupported",
        "ResourceExhausted", "Unavailable" or "Internal"; each has a subclass.
    message: the sentence alone; str() has the place, too.
    file, tensor, offset_bytes, expected, found: where; None where unknown.
    """

    def __init__(self, code, text, message=None, file=None, tensor=None,
                 offset_bytes=None, expected=None, found=None):
        super().__init__(code, text, message, file, tensor, offset_bytes,
                         expected, found)
        self.code = code
        self.text = text
        self.message = message or text
        self.file = file
        self.tensor = tensor
        self.offset_bytes = offset_bytes
        self.expected = expected
        self.found = found

    def __str__(self):
        return self.text


class InvalidArgumentError(Error):
    """The caller asked for something that makes no sense."""


class NotFoundError(Error):
    """A named file, tag or tensor does not exist."""


class DataLossError(Error):
    """Bytes are missing, damaged or contradict each other."""


class UnsupportedError(Error):
    """Well-formed, but outside of what muonstore handles."""


class ResourceExhaustedError(Error):
    """Memory, disk space, descriptors or a set limit."""


class UnavailableError(Error):
    """The operating system or a peer failed; trying again may help."""


class InternalError(Error):
    """A bug in muonstore."""


def make(code, *rest):
    """The exception of a code; the bindings call this."""
    return globals()[code + "Error"](code, *rest)

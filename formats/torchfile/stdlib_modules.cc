#include "formats/torchfile/stdlib_modules.h"

#include <algorithm>
#include <iterator>

namespace muonstore::torchfile {
namespace {

// Sorted bytewise.
// clang-format off
constexpr std::string_view kCodeModules[] = {
    "BaseHTTPServer", "Bastion", "CGIHTTPServer", "ConfigParser", "Cookie",
    "DocXMLRPCServer", "FileDialog", "FixTk", "HTMLParser", "IPython",
    "MimeWriter", "Queue", "ScrolledText", "SimpleDialog", "SimpleHTTPServer",
    "SimpleXMLRPCServer", "SocketServer", "StringIO", "Tix", "Tkconstants",
    "Tkdnd", "Tkinter", "UserDict", "UserList", "UserString", "__builtin__",
    "__future__", "__main__", "_abc", "_aix_support", "_android_support",
    "_apple_support", "_ast", "_ast_unparse", "_asyncio", "_bisect", "_blake2",
    "_bootsubprocess", "_bz2", "_codecs", "_codecs_cn", "_codecs_hk",
    "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw", "_collections",
    "_collections_abc", "_colorize", "_compat_pickle", "_compression",
    "_contextvars", "_crypt", "_csv", "_ctypes", "_curses", "_curses_panel",
    "_datetime", "_dbm", "_decimal", "_dummy_thread", "_elementtree",
    "_frozen_importlib", "_frozen_importlib_external", "_functools", "_gdbm",
    "_hashlib", "_heapq", "_hmac", "_imp", "_interpchannels", "_interpqueues",
    "_interpreters", "_io", "_ios_support", "_json", "_locale", "_lsprof",
    "_lzma", "_markupbase", "_md5", "_msi", "_multibytecodec",
    "_multiprocessing", "_opcode", "_opcode_metadata", "_operator",
    "_osx_support", "_overlapped", "_pickle", "_posixshmem", "_posixsubprocess",
    "_py_abc", "_py_warnings", "_pydatetime", "_pydecimal", "_pyio", "_pylong",
    "_pyrepl", "_queue", "_random", "_remote_debugging", "_scproxy", "_sha1",
    "_sha256", "_sha3", "_sha512", "_signal", "_sitebuiltins", "_socket",
    "_sqlite3", "_sre", "_ssl", "_stat", "_statistics", "_string", "_strptime",
    "_struct", "_suggestions", "_symtable", "_sysconfig", "_testcapi",
    "_thread", "_threading_local", "_tkinter", "_tokenize", "_tracemalloc",
    "_types", "_typing", "_uuid", "_warnings", "_weakref", "_weakrefset",
    "_winapi", "_winreg", "_zoneinfo", "_zstd", "abc", "aifc", "annotationlib",
    "antigravity", "anydbm", "argparse", "array", "ast", "asynchat", "asyncio",
    "asyncore", "atexit", "audioop", "base64", "bdb", "binascii", "binhex",
    "bisect", "bsddb", "builtins", "bz2", "cPickle", "cProfile", "cStringIO",
    "calendar", "cgi", "cgitb", "chunk", "cloudpickle", "cmath", "cmd", "code",
    "codecs", "codeop", "collections", "colorsys", "commands", "compileall",
    "compiler", "compression", "concurrent", "configparser", "contextlib",
    "contextvars", "cookielib", "copy", "copy_reg", "copyreg", "crypt", "csv",
    "ctypes", "curses", "dataclasses", "datetime", "dbhash", "dbm", "decimal",
    "difflib", "dill", "dircache", "dis", "distutils", "dl", "doctest",
    "dumbdbm", "dummy_thread", "dummy_threading", "email", "encodings",
    "ensurepip", "enum", "errno", "exceptions", "faulthandler", "fcntl",
    "filecmp", "fileinput", "fnmatch", "fpformat", "fractions", "ftplib",
    "functools", "future_builtins", "gc", "gdbm", "genericpath", "getopt",
    "getpass", "gettext", "glob", "graphlib", "grp", "gzip", "hashlib", "heapq",
    "hmac", "hotshot", "html", "htmlentitydefs", "htmllib", "http", "httplib",
    "idlelib", "ihooks", "imaplib", "imghdr", "imp", "importlib", "imputil",
    "inspect", "io", "ipaddress", "itertools", "joblib", "json", "keyword",
    "lib2to3", "linecache", "locale", "logging", "lzma", "macpath", "mailbox",
    "mailcap", "markupbase", "marshal", "math", "md5", "mhlib", "mimetools",
    "mimetypes", "mimify", "mmap", "modulefinder", "msilib", "msvcrt",
    "multifile", "multiprocessing", "mutex", "netrc", "new", "nis", "nntplib",
    "nt", "ntpath", "nturl2path", "numbers", "opcode", "operator", "optparse",
    "os", "os2emxpath", "ossaudiodev", "pathlib", "pdb", "pexpect", "pickle",
    "pickletools", "pip", "pipes", "pkg_resources", "pkgutil", "platform",
    "plistlib", "popen2", "poplib", "posix", "posixfile", "posixpath", "pprint",
    "profile", "pstats", "pty", "ptyprocess", "pwd", "py_compile", "pyclbr",
    "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re",
    "readline", "repr", "reprlib", "resource", "rexec", "rfc822", "rlcompleter",
    "robotparser", "runpy", "sched", "secrets", "select", "selectors", "sets",
    "setuptools", "sgmllib", "sha", "shelve", "shlex", "shutil", "signal",
    "site", "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd",
    "sqlite3", "sre", "sre_compile", "sre_constants", "sre_parse", "ssl",
    "stat", "statistics", "statvfs", "string", "stringprep", "struct",
    "subprocess", "sunau", "sunaudio", "symtable", "sys", "sysconfig", "syslog",
    "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap",
    "this", "thread", "threading", "time", "timeit", "tkColorChooser",
    "tkCommonDialog", "tkFileDialog", "tkFont", "tkMessageBox",
    "tkSimpleDialog", "tkinter", "toaiff", "token", "tokenize", "tomllib",
    "trace", "traceback", "tracemalloc", "ttk", "tty", "turtle", "turtledemo",
    "types", "typing", "unicodedata", "unittest", "urllib", "urllib2",
    "urlparse", "uu", "uuid", "venv", "warnings", "wave", "weakref",
    "webbrowser", "whichdb", "winreg", "winsound", "wsgiref", "xdrlib", "xml",
    "xmllib", "xmlrpc", "xmlrpclib", "zipapp", "zipfile", "zipimport", "zlib",
    "zoneinfo",
};
// clang-format on
static_assert(std::is_sorted(std::begin(kCodeModules), std::end(kCodeModules)));

}  // namespace

bool IsCodeModule(std::string_view top_level_name) {
  return std::binary_search(std::begin(kCodeModules), std::end(kCodeModules),
                            top_level_name);
}

}  // namespace muonstore::torchfile

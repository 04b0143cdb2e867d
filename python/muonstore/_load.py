"""Loads the extension module so that nobody else's symbols get into it.

torch exports functions of a oneDNN of its own, of another version, which the
one here would take for its own if torch was imported first. RTLD_DEEPBIND makes
each library look into itself and what it links before it looks elsewhere.
"""
import os
import sys

_flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
try:
    from muonstore import _core  # noqa: F401
finally:
    sys.setdlopenflags(_flags)

// Gives the precompiled headers a program that they belong to.
#include "tests/test_headers.h"

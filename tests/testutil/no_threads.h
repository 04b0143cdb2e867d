// A process in which no thread can be started.
//
// What: for death tests, which have a process of their own.
// Failures: ends the process with 99 if a thread can be started after all.
#ifndef MUONSTORE_TESTS_TESTUTIL_NO_THREADS_H_
#define MUONSTORE_TESTS_TESTUTIL_NO_THREADS_H_

namespace muonstore::testutil {

void RefuseThreads();

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_NO_THREADS_H_
